//! Calls of gRPC that stream, and responses that come in pieces: h52.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use justonce_core::StateName;
use justonce_http::{RequestBody, Rule};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::support::bodies::{self, Piece};
use crate::support::grpc::{answer, call_with, framed, lines, refusal, stream_with};
use crate::support::reply::Reply;
use crate::support::upstream::Upstream;
use crate::support::world::{SECOND, World, call, send, spawn};

const WITH_KEY: &[(&str, &str)] = &[("idempotency-key", "abc")];

/// Sends back each piece of a request as it comes, and ends as the request does.
async fn echo(request: Request<RequestBody<Body>>) -> Result<Response<Body>, Infallible> {
    let (feed, body) = bodies::fed(None);
    let mut pieces = request.into_body();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = pieces.frame().await {
            feed.send(bodies::data(frame.into_data().unwrap())).unwrap();
        }
        feed.send(Piece::Trailers(lines(&[("grpc-status", "0")]))).unwrap();
    });
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn h52_streams_pass_piece_by_piece_in_both_directions() {
    let world = World::new();
    let app = world.layer().build().layer(tower::service_fn(echo));
    let (feed, body) = bodies::fed(None);
    let response = app.oneshot(stream_with(&[], body)).await.unwrap();
    assert_eq!(response.headers().get("idempotency-status").unwrap(), "unprotected");
    let mut back = response.into_body();
    for number in 0..50_u8 {
        feed.send(bodies::data(framed(&[number]))).unwrap();
        let piece = back.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece, framed(&[number]));
        // They may pause.
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    drop(feed);
    let trailers = back.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(world.state().await, StateName::Absent);
}

#[tokio::test(start_paused = true)]
async fn h52_a_stream_with_a_key_is_refused_at_once_and_never_collected() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let (feed, body) = bodies::fed(None);
    let running = spawn(&app, stream_with(WITH_KEY, body));
    feed.send(bodies::data(framed(b"one"))).unwrap();
    let start = Instant::now();
    feed.send(bodies::data(framed(b"two"))).unwrap();
    let reply = running.await.unwrap();
    assert_eq!(refusal(&reply), Some((3, "request-invalid")));
    assert!(reply.header("grpc-message").unwrap().contains("without a key"));
    assert!(start.elapsed() < SECOND);

    // One message, and a client that waits for a response.
    let (feed, body) = bodies::fed(None);
    let start = Instant::now();
    let running = spawn(&app, stream_with(WITH_KEY, body));
    feed.send(bodies::data(framed(b"one"))).unwrap();
    assert_eq!(refusal(&running.await.unwrap()), Some((3, "request-invalid")));
    assert!(start.elapsed() < 15 * SECOND, "it does not wait for ever");

    // A message that never ends.
    let (feed, body) = bodies::fed(None);
    let running = spawn(&app, stream_with(WITH_KEY, body));
    feed.send(bodies::data(framed(b"one")[..6].to_vec())).unwrap();
    assert_eq!(refusal(&running.await.unwrap()), Some((1, "body-incomplete")));
    drop(feed);

    for cut in [&b""[..], &framed(b"one")[..3], &framed(b"one")[..7]] {
        let reply = send(&app, stream_with(WITH_KEY, Body::from(cut.to_vec()))).await;
        assert_eq!(refusal(&reply), Some((3, "request-invalid")));
    }
    assert_eq!((upstream.calls(), world.state().await), (0, StateName::Absent));
}

#[tokio::test(start_paused = true)]
async fn h52_a_slow_end_of_a_unary_call_does_not_lose_its_protection() {
    let world = World::new();
    let upstream = Upstream::answering(|| answer(b"done", lines(&[("grpc-status", "0")])));
    let app = world.app(&upstream);
    let (feed, body) = bodies::fed(None);
    let running = spawn(&app, stream_with(WITH_KEY, body));
    for byte in framed(b"pay") {
        feed.send(bodies::data(vec![byte])).unwrap();
        tokio::time::advance(9 * SECOND).await;
        tokio::task::yield_now().await;
    }
    drop(feed);
    assert_eq!(running.await.unwrap().trailers.unwrap()["grpc-status"], "0");
    assert_eq!(world.state().await, StateName::Completed);
}

/// A service whose responses a test feeds.
fn streaming() -> (Upstream, mpsc::UnboundedReceiver<bodies::Feed>) {
    let (feeds, fed) = mpsc::unbounded_channel();
    let upstream = Upstream::new(move |_| {
        let (feed, body) = bodies::fed(None);
        feeds.send(feed).unwrap();
        let response = Response::builder().header("content-type", "application/grpc").body(body);
        std::future::ready(response.unwrap())
    });
    (upstream, fed)
}

#[tokio::test]
async fn h52_a_stream_of_responses_is_forwarded_as_it_comes() {
    let (world, (upstream, mut feeds)) = (World::new(), streaming());
    let app = world.app(&upstream);
    let caller = tokio::spawn({
        let app = app.clone();
        async move { call(&app, call_with("abc", b"pay")).await.into_body() }
    });
    let feed = feeds.recv().await.unwrap();
    let mut body = caller.await.unwrap();
    for number in 0..20_u8 {
        feed.send(bodies::data(framed(&[number]))).unwrap();
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece, framed(&[number]));
    }
    assert_eq!(world.state().await, StateName::InProgress);
    feed.send(Piece::Trailers(lines(&[("grpc-status", "0")]))).unwrap();
    drop(feed);
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    // It is stored before its last frame is sent.
    assert_eq!(world.state().await, StateName::Completed);
    let second = send(&app, call_with("abc", b"pay")).await;
    assert!(second.is_replay() && second.body.len() == 20 * 6);
}

#[tokio::test]
async fn h52_a_status_in_late_trailers_counts() {
    for (status, state) in [("0", StateName::Completed), ("13", StateName::Unknown)] {
        let (world, (upstream, mut feeds)) = (World::new(), streaming());
        let app = world.app(&upstream);
        let caller = spawn(&app, call_with("abc", b"pay"));
        let feed = feeds.recv().await.unwrap();
        feed.send(bodies::data(framed(b"half"))).unwrap();
        tokio::task::yield_now().await;
        feed.send(Piece::Trailers(lines(&[("grpc-status", status), ("idempotency-status", "9")])))
            .unwrap();
        drop(feed);
        let reply = caller.await.unwrap();
        let trailers: HeaderMap = reply.trailers.unwrap();
        assert_eq!(trailers["grpc-status"], status);
        assert!(!trailers.contains_key("idempotency-status"), "nothing in our name");
        assert_eq!(world.state().await, state);
    }
}

#[tokio::test]
async fn h52_a_response_that_is_broken_off_ends_with_a_status() {
    let (world, (upstream, mut feeds)) = (World::new(), streaming());
    let app = world.app_with(&upstream, Rule::default());
    let caller = tokio::spawn({
        let app = app.clone();
        async move { Reply::of(call(&app, call_with("abc", b"pay")).await).await }
    });
    let feed = feeds.recv().await.unwrap();
    tokio::task::yield_now().await;
    feed.send(bodies::data(framed(b"half")[..6].to_vec())).unwrap();
    tokio::task::yield_now().await;
    feed.send(Piece::Error).unwrap();
    let reply = caller.await.unwrap();
    let trailers = reply.trailers.as_ref().unwrap_or(&reply.headers);
    assert_eq!(trailers["grpc-status"], "2");
    assert_eq!(trailers["idempotency-problem"], "upstream-failed");
    assert_eq!(world.state().await, StateName::Unknown);
    assert_eq!(refusal(&send(&app, call_with("abc", b"pay")).await), Some((2, "outcome-unknown")));
}
