//! Callers that disconnect, and bodies that do not arrive: h19 and h20.

use http::Response;
use justonce_core::StateName;

use crate::support::bodies::{self, Piece};
use crate::support::reply::assert_problem;
use crate::support::socket::{Caller, http2, serve};
use crate::support::upstream::{Upstream, created};
use crate::support::world::{World, call, payment, request, send, spawn};
use http_body_util::BodyExt;
use justonce_http::Rule;

const HEAD: &str = "POST /payments HTTP/1.1\r\nHost: a\r\nIdempotency-Key: abc\r\n";

#[tokio::test]
async fn h19_a_caller_that_leaves_does_not_stop_its_operation() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app(&upstream);
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    go.notify_one();
    world.probe.ended("complete", 1).await;
    let retry = send(&app, payment("abc")).await;
    assert_eq!((retry.text(), retry.is_replay()), ("payment 1", true));
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn h19_a_closed_connection_does_not_stop_its_operation() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let address = serve(world.router(&upstream, Rule::default())).await;
    let mut caller = Caller::to(address).await;
    caller.write(format!("{HEAD}Content-Length: 12\r\n\r\n{{\"amount\":5}}")).await;
    upstream.called(1).await;
    drop(caller);
    // The server drops the request's future once it has seen the end of the connection; whether
    // it has or not, the operation goes on.
    go.notify_one();
    world.probe.ended("complete", 1).await;
    let mut retry = payment("abc");
    retry.headers_mut().insert("host", http::HeaderValue::from_static("a"));
    let retry = send(&world.app(&upstream), retry).await;
    assert_eq!((retry.text(), retry.is_replay()), ("payment 1", true));
}

#[tokio::test]
async fn h19_a_stream_that_was_reset_does_not_stop_its_operation() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let address = serve(world.router(&upstream, Rule::default())).await;
    let over_http2 = tokio::spawn(http2(address, absolute(address)));
    upstream.called(1).await;
    over_http2.abort();
    assert!(over_http2.await.is_err());
    go.notify_one();
    world.probe.ended("complete", 1).await;
    assert_eq!(world.state().await, StateName::Completed);
    assert_eq!(upstream.calls(), 1);
}

fn absolute(address: std::net::SocketAddr) -> http::Request<axum::body::Body> {
    let key = [("idempotency-key", "abc")];
    request("POST", &format!("http://{address}/payments"), &key, r#"{"amount":5}"#)
}

#[tokio::test]
async fn h19_a_caller_that_leaves_before_the_claim_leaves_nothing_behind() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    world.probe.hold("begin");
    let first = spawn(&app, payment("abc"));
    world.probe.arrived("begin").await;
    first.abort();
    assert!(first.await.is_err());
    world.probe.let_go();
    // What may have been claimed without anybody's knowing is given back.
    world.probe.ended("release", 1).await;
    assert_eq!((world.state().await, upstream.calls()), (StateName::Absent, 0));
    assert_eq!(send(&app, payment("abc")).await.code(), 201);
}

#[tokio::test]
async fn h19_a_caller_that_leaves_in_the_middle_of_a_stream_does_not_stop_it() {
    let world = World::new();
    let (feeds, mut fed) = tokio::sync::mpsc::unbounded_channel();
    let upstream = Upstream::new(move |_| {
        let (feed, body) = bodies::fed(None);
        feeds.send(feed).unwrap();
        std::future::ready(Response::new(body))
    });
    let app = world.app(&upstream);
    let caller = tokio::spawn({
        let app = app.clone();
        async move { call(&app, payment("abc")).await.into_body() }
    });
    let feed = fed.recv().await.unwrap();
    feed.send(bodies::data("one ")).unwrap();
    let mut body = caller.await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one ");
    drop(body);
    feed.send(bodies::data("two")).unwrap();
    drop(feed);
    world.probe.ended("complete", 1).await;
    let retry = send(&app, payment("abc")).await;
    assert_eq!((retry.text(), retry.is_replay()), ("one two", true));
}

#[tokio::test]
async fn h20_a_body_that_breaks_off_claims_nothing() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for (pieces, exact) in [
        (vec![bodies::data("{"), Piece::Error], None),
        (vec![Piece::Error], Some(5)),
        // It says how long it is, and lies.
        (vec![bodies::data("{}")], Some(5)),
        (vec![bodies::data("{} and more")], Some(5)),
        (vec![], Some(5)),
    ] {
        let body = bodies::of(pieces, exact);
        let reply = send(&app, request("POST", "/a", &[("idempotency-key", "abc")], body)).await;
        assert_problem(&reply, 400, "body-incomplete");
        assert_eq!(reply.json()["retryable"], true);
    }
    for (length, body) in [("5", "{}"), ("1", "{}"), ("5", "")] {
        let headers = [("idempotency-key", "abc"), ("content-length", length)];
        let reply = send(&app, request("POST", "/a", &headers, body)).await;
        assert_problem(&reply, 400, "body-incomplete");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h20_a_connection_that_closes_in_the_middle_of_the_body_claims_nothing() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, Rule::default())).await;
    for body in ["Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n5\r\nab"] {
        let mut caller = Caller::to(address).await;
        caller.write(format!("{HEAD}{body}")).await;
        caller.finish().await;
        // Once the server has closed too, it has done all it will do.
        caller.read_to_end().await;
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
    assert_eq!(send(&world.app(&upstream), payment("abc")).await.code(), 201, "it lives");
}

#[tokio::test]
async fn h20_a_caller_that_leaves_in_the_middle_of_its_body_claims_nothing() {
    let (world, upstream) = (World::new(), Upstream::new(async |heard| created(heard.number)));
    let app = world.app(&upstream);
    let (feed, body) = bodies::fed(None);
    feed.send(bodies::data("{")).unwrap();
    let first = spawn(&app, request("POST", "/a", &[("idempotency-key", "abc")], body));
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.is_err());
    assert!(feed.is_closed());
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}
