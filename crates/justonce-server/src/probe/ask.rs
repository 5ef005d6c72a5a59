//! One question to the service.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use justonce::engine::{Probe, ProbeEnd, Probed, Unresolved};
use justonce::http::{Rule, outcome_of};
use justonce::{Canonical, Outcome, Resolver, Why};
use justonce_proxy::{Proxy, ProxyError, ResponseTimeout};
use metrics::counter;

use super::facts;
use super::judge::{Meaning, judge};
use crate::config::{ProbeOutcome, ProbeSettings};
use crate::metrics::PROBES;
use crate::resolutions;

/// Asks the service behind one route.
pub(super) struct RouteProbe {
    pub(super) route: String,
    pub(super) settings: ProbeSettings,
    pub(super) rule: Rule,
    pub(super) max_response_bytes: usize,
    pub(super) proxy: Proxy,
}

impl Probe for RouteProbe {
    async fn ask(&self, about: Unresolved) -> Probed {
        match self.heard(&about).await {
            Some(response) => self.conclude(&about, &response),
            None => Probed::AskAgain,
        }
    }

    fn ended(&self, about: &Unresolved, end: &ProbeEnd) {
        let by = Resolver::probe(&self.route);
        let result = match end {
            ProbeEnd::Resolved(how) => {
                resolutions::taken(about.id, &by, *how);
                how.as_str()
            }
            ProbeEnd::Lost(_) => {
                resolutions::lost(&by);
                "late"
            }
            ProbeEnd::Unclear => "unclear",
            ProbeEnd::TooEarly => "too_early",
            ProbeEnd::NoAnswer => "no_answer",
            ProbeEnd::Store(error) => {
                tracing::warn!(target: "justonce::store", %error, "a resolution was not stored");
                "store_failed"
            }
        };
        counter!(PROBES.name, "route" => self.route.clone(), "result" => result).increment(1);
    }
}

impl RouteProbe {
    /// The whole response; nothing if there is none that could be relied on.
    async fn heard(&self, about: &Unresolved) -> Option<Response<Bytes>> {
        let Some(request) = self.request(about) else {
            tracing::warn!(
                target: "justonce::probe", route = %self.route, id = %about.id,
                "no probe request can be built; resolve it by hand"
            );
            return None;
        };
        let (parts, body) = self.proxy.send(request).await.into_parts();
        if let Some(trouble) = parts.extensions.get::<ProxyError>() {
            let (route, id) = (&self.route, about.id);
            tracing::info!(target: "justonce::probe", %route, %id, ?trouble, "no response");
            return None;
        }
        let body = Limited::new(body, self.max_response_bytes).collect().await;
        let body = body
            .inspect_err(|error| {
                let (route, id) = (&self.route, about.id);
                tracing::warn!(
                    target: "justonce::probe", %route, %id, %error, "truncated response"
                );
            })
            .ok()?;
        Some(Response::from_parts(parts, body.to_bytes()))
    }

    /// The question; nothing if a fact that it needs is missing or cannot be sent.
    fn request(&self, about: &Unresolved) -> Option<Request<Empty<Bytes>>> {
        let target = facts::target(&self.settings.request.target, about)?;
        let mut request = Request::builder().method(&self.settings.request.method).uri(target);
        for header in &self.settings.headers {
            let value = HeaderValue::try_from(facts::value(&header.value, about)?).ok()?;
            request = request.header(&header.name, value);
        }
        // What is compressed could not be looked into.
        request = request.header(ACCEPT_ENCODING, "identity");
        let request = request.extension(ResponseTimeout(self.settings.timeout));
        request.body(Empty::new()).ok()
    }

    fn conclude(&self, about: &Unresolved, response: &Response<Bytes>) -> Probed {
        let status = response.status();
        let why = Why::new(&format!(
            "{} {} was answered with {}",
            self.settings.request.method,
            self.settings.request.target,
            status.as_u16()
        ));
        match judge(&self.settings, about, status, response.body()) {
            Meaning::Happened => match self.outcome(response) {
                Some(outcome) => Probed::Happened(outcome, why),
                None => Probed::AskAgain,
            },
            Meaning::DidNotHappen => Probed::DidNotHappen(why),
            Meaning::Unclear => Probed::AskAgain,
        }
    }

    /// What is replayed; nothing if the response has not what it should have.
    fn outcome(&self, response: &Response<Bytes>) -> Option<Outcome> {
        let status = match self.settings.status {
            Some(code) => StatusCode::from_u16(code).ok()?,
            None => response.status(),
        };
        let mut replayed = match &self.settings.outcome {
            ProbeOutcome::Empty => Response::new(Bytes::new()),
            ProbeOutcome::Json(place) => {
                let json = Canonical::of(response.body());
                let found = Bytes::copy_from_slice(place.find(&json)?.as_bytes());
                let mut replay = Response::new(found);
                let kind = HeaderValue::from_static("application/json");
                replay.headers_mut().insert(CONTENT_TYPE, kind);
                replay
            }
            ProbeOutcome::Answer => {
                let mut replay = Response::new(response.body().clone());
                replay.headers_mut().clone_from(response.headers());
                replay
            }
        };
        *replayed.status_mut() = status;
        let outcome = outcome_of(&replayed, &self.rule);
        outcome.body().is_some().then_some(outcome)
    }
}
