//! Requests that the listener does not hand to the gateway: their heads are no HTTP, too long, or
//! do not come.

use std::time::SystemTime;

use justonce_proxy::{RefusalObserver, RefusedRequest};
use metrics::counter;

use super::entry::Entry;
use super::log::AccessLog;
use super::{query, time};
use crate::metrics::UNREAD_REQUESTS;

/// How such a request is logged.
const ANSWER: &str = "refused";

/// Counts such requests, and logs them.
#[derive(Debug)]
pub(crate) struct Refused(Option<AccessLog>);

impl Refused {
    pub(crate) const fn new(log: Option<AccessLog>) -> Self {
        Self(log)
    }
}

impl RefusalObserver for Refused {
    fn refused(&self, request: &RefusedRequest<'_>) {
        counter!(UNREAD_REQUESTS.name, "reason" => request.reason.as_str()).increment(1);
        let Some(log) = &self.0 else { return };
        log.put(entry(log, request, time::now()).line(log.format()));
    }
}

fn entry(log: &AccessLog, request: &RefusedRequest<'_>, now: SystemTime) -> Entry {
    let (method, uri) = request.head.unzip();
    Entry {
        time: now.checked_sub(request.elapsed).unwrap_or(now),
        client: request.client,
        method: method.cloned(),
        path: uri.map(|uri| query::path(uri.path())),
        query: uri.and_then(|uri| query::query(uri.query(), log.query())),
        version: request.version,
        status: request.status.map(|status| status.as_u16()),
        is_cut: false,
        request_bytes: 0,
        response_bytes: 0,
        total: request.elapsed,
        upstream: None,
        route: None,
        answer: ANSWER,
        reason: Some(request.reason.as_str()),
        key: None,
        record: None,
        attempt: None,
        trace: None,
        referer: None,
        agent: None,
    }
}
