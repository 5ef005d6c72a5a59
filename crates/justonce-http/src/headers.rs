//! The headers of the contract, and which of an answer's headers are stored.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
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

/// Every name of ours.
const OURS: [HeaderName; 8] = [KEY, ATTEMPT, FENCE, RECORD, OUTCOME, REPLAYED, STATUS, LIFETIME];
/// What all of them begin with.
const OURS_BEGIN: &str = "idempoten";

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

/// Whether a name is one of ours to some reader: servers that hand headers on as variables do not
/// tell `-` from `_`.
fn is_like_ours(name: &HeaderName) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let is = |ours: &HeaderName| {
        let (ours, name) = (ours.as_str().bytes(), name.as_str().bytes());
        ours.len() == name.len() && ours.eq(name.map(dashed))
    };
    name.as_str().starts_with(OURS_BEGIN) && OURS.iter().any(is)
}

/// Removes from a request's headers what only the layer says to the service, in every spelling.
/// The key is the caller's to say, under its own name.
pub(crate) fn remove_ours(headers: &mut HeaderMap) {
    remove_if(headers, |name| *name != KEY && is_like_ours(name));
}

/// The same for a request's trailers, where callers have nothing of it to say.
pub(crate) fn remove_ours_behind(trailers: &mut HeaderMap) {
    remove_if(trailers, is_like_ours);
}

/// To see that nothing is to be removed is quicker than to look for each.
fn remove_if(headers: &mut HeaderMap, goes: impl Fn(&HeaderName) -> bool) {
    if !headers.keys().any(&goes) {
        return;
    }
    let names: Vec<HeaderName> = headers.keys().filter(|name| goes(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes from a request what concerns one hop only: what is known to, and what `Connection`
/// names. What frames the body stays for whoever reads it, and nobody removes what a promise
/// depends on by naming it.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use justonce_http::headers::remove_per_hop;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("connection", HeaderValue::from_static("x-tenant"));
/// headers.insert("x-tenant", HeaderValue::from_static("forged"));
/// remove_per_hop(&mut headers);
/// assert!(headers.is_empty());
/// ```
pub fn remove_per_hop(headers: &mut HeaderMap) {
    const HOP: [HeaderName; 6] = [
        CONNECTION,
        UPGRADE,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
    ];
    if !headers.keys().any(|name| HOP.contains(name)) {
        return;
    }
    for name in named_by_connection(headers).into_iter().filter(may_be_named).chain(HOP) {
        headers.remove(name);
    }
}

/// Whether `Connection` can make a request's header one of this hop.
fn may_be_named(name: &HeaderName) -> bool {
    const KEPT: [HeaderName; 7] =
        [HOST, AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING, TE, TRAILER, EXPECT];
    !KEPT.contains(name) && !is_like_ours(name)
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).into_iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// Which headers of one answer go where.
pub(crate) struct Filter<'a> {
    rule: &'a Rule,
    named_by_connection: Vec<HeaderName>,
}

impl<'a> Filter<'a> {
    pub(crate) fn new(rule: &'a Rule, headers: &HeaderMap) -> Self {
        Self { rule, named_by_connection: named_by_connection(headers) }
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn our_names_are_known_in_every_spelling() {
        let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).unwrap();
        for like in ["Idempotency_Fence", "IDEMPOTENCY-RECORD", "idempotency_key_lifetime"] {
            assert!(is_like_ours(&name(like)), "{like}");
        }
        for other in ["idempotency", "idempotency-fences", "x-idempotency-key", "idempotency.key"] {
            assert!(!is_like_ours(&name(other)), "{other}");
        }
        assert!(OURS.iter().all(|ours| ours.as_str().starts_with(OURS_BEGIN)));
    }

    #[test]
    fn what_a_promise_depends_on_stays() {
        let mut headers = HeaderMap::new();
        let kept = ["host", "authorization", "idempotency-key", "content-length", "te", "expect"];
        for name in kept {
            headers.insert(name, HeaderValue::from_static("a"));
            headers.append(CONNECTION, HeaderValue::from_static(name));
        }
        headers.append(CONNECTION, HeaderValue::from_static("x, ,cookie"));
        headers.insert("cookie", HeaderValue::from_static("a=b"));
        headers.insert("proxy-authorization", HeaderValue::from_static("a"));
        remove_per_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        let mut kept = kept;
        kept.sort_unstable();
        assert_eq!(left, kept);
    }
}
