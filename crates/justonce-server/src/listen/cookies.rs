//! HTTP/2 clients may send the cookies of one request as several fields.

use bytes::Bytes;
use http::header::{COOKIE, HeaderMap, HeaderValue};

/// Joins them into the one field that everything behind us expects (RFC 9113, 8.2.3): `Cookie` is
/// no list, so servers of HTTP/1.1 read one line of it.
pub(super) fn join(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(lines) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    // What was made of valid values is one.
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(joined)) {
        headers.insert(COOKIE, value);
    }
}
