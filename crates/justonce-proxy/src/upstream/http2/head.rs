//! The heads of requests in the form of HTTP/2.

use http::header::{CONNECTION, HOST, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Scheme};
use http::{Request, Uri, Version, request};

/// What HTTP/2 has no place for.
const HTTP1_ONLY: [HeaderName; 3] = [CONNECTION, TRANSFER_ENCODING, UPGRADE];

/// The head of a request in the form of HTTP/2, if it has one. The request stays as it is, so that
/// it can be sent to another upstream.
pub(super) fn head(parts: &request::Parts, is_tls: bool) -> Option<Request<()>> {
    let mut head = Request::new(());
    *head.method_mut() = parts.method.clone();
    *head.uri_mut() = parts.uri.clone();
    *head.headers_mut() = parts.headers.clone();
    to_http2(&mut head, is_tls).then_some(head)
}

/// Brings a request into the form of HTTP/2, if it has one: its host is a part of its target.
pub(in crate::upstream) fn to_http2<B>(request: &mut Request<B>, is_tls: bool) -> bool {
    let Some(uri) = with_host(request, is_tls) else { return false };
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    headers.remove(HOST);
    for name in HTTP1_ONLY {
        headers.remove(name);
    }
    true
}

fn with_host<B>(request: &Request<B>, is_tls: bool) -> Option<Uri> {
    let host = request.headers().get(HOST)?;
    let mut parts = request.uri().clone().into_parts();
    parts.authority = Some(Authority::try_from(host.as_bytes()).ok()?);
    parts.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    Uri::from_parts(parts).ok()
}
