//! The headers of the contract, and which of an answer's headers are stored.

use http::header::{
    AUTHORIZATION, CONNECTION, DATE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE,
    TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName};

use crate::rule::Rule;

/// The caller's key.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// To the service: which attempt this is.
pub const ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
/// To the service: the fence of the claim.
pub const FENCE: HeaderName = HeaderName::from_static("idempotency-fence");
/// To the service: the name of the record, by which it can tell later what became of it.
pub const RECORD: HeaderName = HeaderName::from_static("idempotency-record");
/// From the service: what became of the operation.
pub const OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// To the caller: this answer is a replay.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// To the caller: this answer was given without protection.
pub const STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// To the caller: how long answers are replayed, in seconds.
pub const LIFETIME: HeaderName = HeaderName::from_static("idempotency-key-lifetime");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const COOKIE2: HeaderName = HeaderName::from_static("set-cookie2");
const AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("authentication-info");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// Whether a header concerns one hop only, by its own name. `Trailer` does not: without it HTTP/1.1
/// servers send no trailers.
fn is_per_hop(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, TE, KEEP_ALIVE, PROXY_CONNECTION].contains(name)
}

/// Whether a header gives its receiver rights, or tells who they are.
fn is_personal(name: &HeaderName) -> bool {
    [
        SET_COOKIE,
        COOKIE2,
        WWW_AUTHENTICATE,
        PROXY_AUTHENTICATE,
        AUTHENTICATION_INFO,
        PROXY_AUTHENTICATION_INFO,
        AUTHORIZATION,
        PROXY_AUTHORIZATION,
    ]
    .contains(name)
}

/// Ours: never stored, never accepted from the service.
fn is_ours(name: &HeaderName) -> bool {
    [OUTCOME, REPLAYED, STATUS, LIFETIME].contains(name)
}

/// Which headers of one answer go where.
pub(crate) struct Filter<'a> {
    rule: &'a Rule,
    named_by_connection: Vec<HeaderName>,
}

impl<'a> Filter<'a> {
    pub(crate) fn new(rule: &'a Rule, headers: &HeaderMap) -> Self {
        let lines = headers.get_all(CONNECTION).into_iter().filter_map(|line| line.to_str().ok());
        let names = lines.flat_map(|line| line.split(','));
        let named = names.filter_map(|name| name.trim().parse().ok()).collect();
        Self { rule, named_by_connection: named }
    }

    /// Whether a header goes to the caller who is answered now.
    pub(crate) fn forwards(&self, name: &HeaderName) -> bool {
        !is_per_hop(name) && !is_ours(name) && !self.named_by_connection.contains(name)
    }

    /// Whether a header is stored for replays.
    pub(crate) fn stores(&self, name: &HeaderName) -> bool {
        if self.rule.keep_headers.contains(name) {
            return self.forwards(name);
        }
        self.forwards(name)
            && *name != DATE
            && !is_personal(name)
            && !self.rule.drop_headers.contains(name)
    }
}
