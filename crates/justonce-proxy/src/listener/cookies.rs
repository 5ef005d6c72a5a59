//! Cookies of HTTP/2 requests, which may come as several fields.

use bytes::Bytes;
use http::header::{COOKIE, HeaderMap, HeaderValue};

/// Joins them into one field (RFC 9113, 8.2.3): `Cookie` is no list, so HTTP/1.1 servers read only
/// one line of it.
pub(super) fn join(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Valid values joined are a valid value.
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(lines.join(&b"; "[..]))) {
        headers.insert(COOKIE, value);
    }
}
