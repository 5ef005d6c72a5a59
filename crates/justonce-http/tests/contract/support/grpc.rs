//! Calls of gRPC and what comes back.

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};

use super::bodies::{self, Piece};
use super::reply::Reply;
use super::world::request;

/// A message as it is sent, not compressed.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// A call with a key and one message.
pub(crate) fn call_with(key: &str, message: &[u8]) -> Request<Body> {
    let headers = [
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "5S"),
        ("idempotency-key", key),
    ];
    http2(request("POST", "/shop.Payments/Pay", &headers, framed(message)))
}

/// A call without a key, or whatever else its headers say.
pub(crate) fn stream_with(headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut all = vec![("content-type", "application/grpc"), ("te", "trailers")];
    all.extend_from_slice(headers);
    http2(request("POST", "/shop.Payments/Watch", &all, body))
}

fn http2(mut request: Request<Body>) -> Request<Body> {
    *request.version_mut() = Version::HTTP_2;
    request
}

/// Some headers, in this order.
pub(crate) fn lines(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    lines.iter().map(line).collect()
}

/// A response with a message and these trailers.
pub(crate) fn answer(message: &[u8], trailers: HeaderMap) -> Response<Body> {
    let frames = [bodies::data(framed(message)), Piece::Trailers(trailers)];
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(bodies::of(frames, None)).expect("a valid response")
}

/// A response that is only a head, with these lines in it.
pub(crate) fn trailers_only(trailers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = trailers;
    response.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
    response
}

/// The status of a refusal and the code of its problem, if a reply has the form of one.
pub(crate) fn refusal(reply: &Reply) -> Option<(u8, &str)> {
    let problem = reply.header("idempotency-problem")?;
    assert_eq!(reply.code(), 200);
    assert_eq!(reply.header("content-type"), Some("application/grpc"));
    assert!(reply.body.is_empty() && reply.trailers.is_none(), "{reply:?}");
    let message = reply.header("grpc-message").expect("a message");
    assert!(message.len() > 20, "{message}");
    Some((reply.header("grpc-status")?.parse().expect("a number"), problem))
}
