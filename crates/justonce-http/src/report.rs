//! What the layer tells about a request to whoever logs it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::request;
use justonce_core::{Key, Operation, RecordId};

use crate::meters::Disposition;
use crate::routes::Route;
use crate::trace::TraceId;

/// What became of a request: an extension that a service in front of the layer adds to it, keeps a
/// clone of, and reads when the response has ended. An access log is made of it.
///
/// ```
/// use justonce_http::RequestReport;
///
/// let report = RequestReport::default();
/// let mut request = http::Request::post("/payments").body(()).unwrap();
/// request.extensions_mut().insert(report.clone());
/// // Nothing is known before the layer has answered.
/// assert_eq!((report.route(), report.answer()), (None, None));
/// ```
#[derive(Clone, Default)]
pub struct RequestReport(Arc<Slots>);

#[derive(Default)]
struct Slots {
    route: OnceLock<Arc<Route>>,
    answer: OnceLock<Answer>,
}

struct Answer {
    kind: &'static str,
    operation: Option<(Key, RecordId)>,
    attempt: u32,
}

impl RequestReport {
    /// The name of the request's route; nothing if none was looked for.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        self.0.route.get().map(|route| &*route.name)
    }

    /// How the request was answered: the label `status` of
    /// [`idempotency_requests_total`](crate::metrics::REQUESTS) on protected routes; `passed` on
    /// others; `refused` if the request is malformed; `page` for what the layer serves itself.
    #[must_use]
    pub fn answer(&self) -> Option<&'static str> {
        self.0.answer.get().map(|answer| answer.kind)
    }

    /// A hash of the key, as the lines of the layer's log have it: never the key.
    #[must_use]
    pub fn key_hash(&self) -> Option<String> {
        let (key, _) = self.0.answer.get()?.operation.as_ref()?;
        let shown = format!("{key:?}");
        let hash = shown.strip_prefix("Key(").and_then(|hash| hash.strip_suffix(')'));
        Some(hash.unwrap_or_default().to_owned())
    }

    /// The record of the operation.
    #[must_use]
    pub fn record(&self) -> Option<RecordId> {
        self.0.answer.get()?.operation.as_ref().map(|(_, record)| *record)
    }

    /// The number of the attempt, if the operation was executed.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        self.0.answer.get().map(|answer| answer.attempt).filter(|attempt| *attempt > 0)
    }

    /// Notes an answer that is given outside protected routes.
    pub(crate) fn answered(&self, route: Option<&Arc<Route>>, kind: &'static str) {
        if let Some(route) = route {
            let _ = self.0.route.set(Arc::clone(route));
        }
        let _ = self.0.answer.set(Answer { kind, operation: None, attempt: 0 });
    }
}

impl fmt::Debug for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestReport")
            .field("route", &self.route())
            .field("answer", &self.answer())
            .finish_non_exhaustive()
    }
}

/// What the lines about one request need of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    report: Option<RequestReport>,
    pub(crate) trace: Option<TraceId>,
}

impl Notes {
    pub(crate) fn of(parts: &request::Parts, route: &Arc<Route>) -> Self {
        let report = parts.extensions.get::<RequestReport>().cloned();
        if let Some(report) = &report {
            let _ = report.0.route.set(Arc::clone(route));
        }
        Self { report, trace: TraceId::of(&parts.headers) }
    }

    /// Notes how the request was answered. The first answer counts.
    pub(crate) fn answered(
        &self,
        operation: Option<&Operation>,
        disposition: Disposition,
        attempt: u32,
    ) {
        let Some(report) = &self.report else { return };
        let operation = operation.map(|operation| (operation.key().clone(), operation.id()));
        let kind = disposition.label();
        let _ = report.0.answer.set(Answer { kind, operation, attempt });
    }
}
