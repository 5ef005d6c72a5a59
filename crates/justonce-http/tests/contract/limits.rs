//! Requests over the limit: h34.

use justonce_http::{KeySource, Rule};

use crate::support::bodies;
use crate::support::reply::assert_problem;
use crate::support::socket::{Caller, serve};
use crate::support::upstream::Upstream;
use crate::support::world::{World, request, send};

const LIMIT: usize = 1000;
const KEY: [(&str, &str); 1] = [("idempotency-key", "abc")];

#[tokio::test]
async fn h34_a_body_at_the_limit_is_executed_and_one_over_it_is_not_claimed() {
    for (size, exact) in [(LIMIT, true), (LIMIT, false), (LIMIT + 1, true), (LIMIT + 1, false)] {
        let (world, upstream) = (World::new(), Upstream::counting());
        let app = world.app_with(&upstream, Rule::default().max_request_bytes(LIMIT));
        let pieces =
            [bodies::data(vec![b'x'; LIMIT - 1]), bodies::data(vec![b'x'; size + 1 - LIMIT])];
        let body = bodies::of(pieces, exact.then_some(size as u64));
        let reply = send(&app, request("POST", "/a", &KEY, body)).await;
        if size == LIMIT {
            assert_eq!((reply.code(), upstream.heard(1).body.len()), (201, LIMIT));
        } else {
            assert_problem(&reply, 413, "body-too-large");
            assert_eq!(reply.json()["retryable"], false);
            assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
        }
    }
}

#[tokio::test]
async fn h34_an_announced_length_over_the_limit_is_refused_unread() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().max_request_bytes(LIMIT));
    // Nothing ever comes: reading it would take for ever.
    let (_feed, body) = bodies::fed(None);
    let headers = [KEY[0], ("content-length", "1001")];
    assert_problem(&send(&app, request("POST", "/a", &headers, body)).await, 413, "body-too-large");
    let (_feed, body) = bodies::fed(Some(1001));
    assert_problem(&send(&app, request("POST", "/a", &KEY, body)).await, 413, "body-too-large");
}

#[tokio::test]
async fn h34_unprotected_requests_have_no_limit_of_ours() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().max_request_bytes(LIMIT));
    let reply = send(&app, request("POST", "/a", &[], vec![7; LIMIT + 1])).await;
    assert_eq!((reply.code(), upstream.heard(1).body.len()), (201, LIMIT + 1));
}

fn head(key: &str, length: usize) -> String {
    format!(
        "POST /payments HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\n\
         Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn h34_continue_is_said_once_the_key_is_valid() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, Rule::default())).await;
    let mut caller = Caller::to(address).await;
    caller.write(head("abc", 2)).await;
    let read = caller.read_until("\r\n\r\n").await;
    assert!(read.starts_with("HTTP/1.1 100 Continue"), "{read}");
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0), "and nothing is claimed yet");
    caller.write("{}").await;
    let read = caller.read_until("payment 1").await;
    assert!(read.starts_with("HTTP/1.1 201"), "{read}");
}

#[tokio::test]
async fn h34_continue_is_not_said_for_a_wrong_key_or_a_body_over_the_limit() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, Rule::default().max_request_bytes(LIMIT))).await;
    for (head, status) in [
        (head("a,b", 2), "HTTP/1.1 400"),
        (head("abc", LIMIT + 1), "HTTP/1.1 413"),
        (head("abc\r\nIdempotency-Key: abc", 2), "HTTP/1.1 400"),
    ] {
        let mut caller = Caller::to(address).await;
        caller.write(head).await;
        let read = caller.read_until("\r\n\r\n").await;
        assert!(read.starts_with(status), "{read}");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h34_a_key_in_the_body_is_checked_after_the_limit() {
    let source = KeySource::Json(justonce_core::JsonPointer::parse("/id").unwrap());
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = Rule::default().max_request_bytes(LIMIT).key_source(source);
    let body = format!(r#"{{"id":"a","more":"{}"}}"#, "x".repeat(LIMIT));
    let reply = send(&world.app_with(&upstream, rule), request("POST", "/a", &[], body)).await;
    assert_problem(&reply, 413, "body-too-large");
}

#[tokio::test]
async fn h38_a_key_cannot_smuggle_headers() {
    let source = |text| KeySource::Json(justonce_core::JsonPointer::parse(text).unwrap());
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_source(source("/id")));
    for body in [r#"{"id":"a\r\nX-Admin: 1"}"#, r#"{"id":"a\u0000"}"#, r#"{"id":"a\u007f"}"#] {
        assert_problem(&send(&app, request("POST", "/a", &[], body)).await, 400, "key-invalid");
    }
    let app = world.app_with(&upstream, Rule::default().key_source(KeySource::Query("id".into())));
    for path in ["/a?id=a%0d%0aX-Admin:1", "/a?id=a%00", "/a?id=%E2%82%AC"] {
        assert_problem(&send(&app, request("POST", path, &[], "")).await, 400, "key-invalid");
    }
    assert_eq!(upstream.calls(), 0);
    // Quotes and backslashes reach the service escaped, as one header.
    let app = world.app_with(&upstream, Rule::default().key_source(source("/id")));
    send(&app, request("POST", "/a", &[], r#"{"id":"a\",b\\"}"#)).await;
    assert_eq!(upstream.heard(1).header("idempotency-key"), Some(r#""a\",b\\""#));
}
