//! The headers of the contract, and which headers of a request are removed.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

/// The caller's key.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// To the service: the attempt, from 1.
pub const ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
/// To the service: the fence of the claim.
pub const FENCE: HeaderName = HeaderName::from_static("idempotency-fence");
/// To the service: the id of the record, by which it can report later what became of it.
pub const RECORD: HeaderName = HeaderName::from_static("idempotency-record");
/// From the service: the effect of the operation.
pub const OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// To the caller: this response is a replay.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// To the caller: this response was given without protection.
pub const STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// To the caller: how long responses are replayed, in seconds.
pub const LIFETIME: HeaderName = HeaderName::from_static("idempotency-key-lifetime");
/// To callers of gRPC: the code of the problem that a refusal is.
pub const PROBLEM: HeaderName = HeaderName::from_static("idempotency-problem");

const OURS: [HeaderName; 9] =
    [KEY, ATTEMPT, FENCE, RECORD, OUTCOME, REPLAYED, STATUS, LIFETIME, PROBLEM];
/// The prefix of all of them.
const OURS_PREFIX: &str = "idempoten";

pub(crate) const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
pub(crate) const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Whether some reader takes a name for one of ours: CGI-like servers do not distinguish `-` from
/// `_`.
fn is_like_ours(name: &HeaderName) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let is = |ours: &HeaderName| ours.as_str().bytes().eq(name.as_str().bytes().map(dashed));
    name.as_str().starts_with(OURS_PREFIX) && OURS.iter().any(is)
}

/// Removes from a request's headers what only the layer tells the service, in every spelling. The
/// key stays under its own name.
pub(crate) fn remove_ours(headers: &mut HeaderMap) {
    remove_if(headers, |name| *name != KEY && is_like_ours(name));
}

/// Removes all our names from trailers.
pub(crate) fn remove_ours_from_trailers(trailers: &mut HeaderMap) {
    remove_if(trailers, is_like_ours);
}

fn remove_if(headers: &mut HeaderMap, goes: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| goes(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes the hop-by-hop headers of a request: the known ones, and those that `Connection` names.
/// Framing headers stay for the reader of the body, and headers that the contract depends on stay
/// although `Connection` names them.
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

/// Whether `Connection` can make a request header hop-by-hop.
fn may_be_named(name: &HeaderName) -> bool {
    const KEPT: [HeaderName; 7] =
        [HOST, AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING, TE, TRAILER, EXPECT];
    !KEPT.contains(name) && !is_like_ours(name)
}

/// The headers that `Connection` names.
pub(crate) fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).into_iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
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
        assert!(OURS.iter().all(|ours| ours.as_str().starts_with(OURS_PREFIX)));
    }

    #[test]
    fn what_a_guarantee_depends_on_stays() {
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
