//! Answers that are streamed: h31.

use axum::body::Body;
use http::Response;
use http_body_util::BodyExt;
use justonce_core::StateName;
use justonce_http::{ResponseBody, Rule};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::bodies::{self, Feed, Piece};
use crate::support::reply::{Reply, assert_problem};
use crate::support::socket::{Caller, serve};
use crate::support::upstream::Upstream;
use crate::support::world::{App, SECOND, World, call, pass, payment, send, spawn};

/// A service whose answers a test feeds.
fn streaming(exact: Option<u64>) -> (Upstream, UnboundedReceiver<Feed>) {
    let (feeds, fed) = unbounded_channel();
    let upstream = Upstream::new(move |_| {
        let (feed, body) = bodies::fed(exact);
        feeds.send(feed).unwrap();
        std::future::ready(Response::new(body))
    });
    (upstream, fed)
}

/// Starts an operation whose answer begins with this.
async fn begun(
    app: &App,
    feeds: &mut UnboundedReceiver<Feed>,
    first: &'static str,
) -> (Feed, ResponseBody<Body>) {
    let caller = tokio::spawn({
        let app = app.clone();
        async move { call(&app, payment("abc")).await.into_body() }
    });
    let feed = feeds.recv().await.unwrap();
    feed.send(bodies::data(first)).unwrap();
    (feed, caller.await.unwrap())
}

async fn text(body: &mut ResponseBody<Body>) -> String {
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    String::from_utf8(frame.to_vec()).unwrap()
}

#[tokio::test]
async fn h31_pieces_are_forwarded_as_they_come_and_the_record_completes_at_the_end() {
    let (world, (upstream, mut feeds)) = (World::new(), streaming(None));
    let app = world.app(&upstream);
    let (feed, mut body) = begun(&app, &mut feeds, "one").await;
    assert_eq!(text(&mut body).await, "one");
    for piece in ["two", "three"] {
        feed.send(bodies::data(piece)).unwrap();
        assert_eq!(text(&mut body).await, piece);
    }
    assert_eq!(world.state().await, StateName::InProgress);
    assert_problem(&send(&app, payment("abc")).await, 409, "in-flight");
    drop(feed);
    assert!(body.frame().await.is_none(), "a clean end");
    assert_eq!(world.state().await, StateName::Completed);
    let replay = send(&app, payment("abc")).await;
    assert_eq!((replay.text(), replay.is_replay()), ("onetwothree", true));
}

#[tokio::test]
async fn h31_over_a_socket_pieces_are_forwarded_as_they_come() {
    let (world, (upstream, mut feeds)) = (World::new(), streaming(None));
    let address = serve(world.router(&upstream, Rule::default())).await;
    let mut caller = Caller::to(address).await;
    let head = "POST /payments HTTP/1.1\r\nHost: a\r\nIdempotency-Key: abc\r\n";
    caller.write(format!("{head}Content-Length: 12\r\n\r\n{{\"amount\":5}}")).await;
    let feed = feeds.recv().await.unwrap();
    feed.send(bodies::data("one")).unwrap();
    let read = caller.read_until("one\r\n").await;
    assert!(read.contains("transfer-encoding: chunked"), "{read}");
    feed.send(bodies::data("two")).unwrap();
    caller.read_until("two\r\n").await;
    drop(feed);
    caller.read_until("0\r\n\r\n").await;
    assert_eq!(world.state().await, StateName::Completed);
}

#[tokio::test]
async fn h31_an_abort_in_the_middle_is_unknown_and_the_caller_sees_it() {
    // By an error, and by an end before the announced length.
    for (exact, piece) in [(None, Some(Piece::Error)), (Some(1 << 20), None)] {
        let (world, (upstream, mut feeds)) = (World::new(), streaming(exact));
        let app = world.app(&upstream);
        let (feed, mut body) = begun(&app, &mut feeds, "one").await;
        assert_eq!(text(&mut body).await, "one");
        if let Some(piece) = piece {
            feed.send(piece).unwrap();
        }
        drop(feed);
        assert!(body.frame().await.unwrap().is_err(), "no clean end");
        world.probe.ended("abandon", 1).await;
        assert_eq!(world.state().await, StateName::Unknown);
        assert_problem(&send(&app, payment("abc")).await, 409, "outcome-unknown");
        assert_eq!(upstream.calls(), 1);
    }
}

#[tokio::test]
async fn h31_an_answer_whose_length_header_lies_is_unknown() {
    for (length, body) in [("10", "short"), ("3", "longer")] {
        let world = World::new();
        let upstream = Upstream::answering(move || {
            let answer = Response::builder().header("content-length", length);
            answer.body(bodies::of([bodies::data(body)], None)).unwrap()
        });
        assert_problem(&send(&world.app(&upstream), payment("abc")).await, 502, "upstream-failed");
        assert_eq!(world.state().await, StateName::Unknown);
    }
}

#[tokio::test]
async fn h31_an_empty_piece_after_the_last_does_not_push_it_out() {
    let size = 100_000;
    let (world, (upstream, mut feeds)) = (World::new(), streaming(Some(size as u64 + 3)));
    let app = world.app(&upstream);
    let (feed, body) = begun(&app, &mut feeds, "one").await;
    for piece in ["x".repeat(size), String::new()] {
        feed.send(bodies::data(piece)).unwrap();
    }
    drop(feed);
    let read = body.collect().await.unwrap().to_bytes();
    assert_eq!(read.len(), size + 3);
    assert_eq!(send(&app, payment("abc")).await.body, read);
}

#[tokio::test(start_paused = true)]
async fn h31_a_caller_that_never_reads_does_not_keep_its_outcome_from_being_stored() {
    let world = World::new();
    let size = 3 * 1024 * 1024;
    let upstream = Upstream::answering(move || {
        let frames = (0..size / 1024).map(|_| bodies::data(vec![7; 1024]));
        Response::new(bodies::of(frames, None))
    });
    let app = world.app(&upstream);
    let unread = call(&app, payment("abc")).await;
    world.probe.ended("complete", 1).await;
    assert_eq!(send(&app, payment("abc")).await.body.len(), size);
    // It was all kept for the caller, who may still read it.
    assert_eq!(Reply::of(unread).await.body.len(), size);
}

#[tokio::test(start_paused = true)]
async fn h31_a_caller_that_never_reads_a_huge_answer_is_left_behind() {
    let (world, (upstream, mut feeds)) = (World::new(), streaming(None));
    let app = world.app_with(&upstream, Rule::default().max_stored_bytes(1000));
    let (feed, mut unread) = begun(&app, &mut feeds, "one").await;
    for _ in 0..64 {
        feed.send(bodies::data(vec![7; 64 * 1024])).unwrap();
    }
    // The queue for the caller is full now: the rest waits, and nothing is lost yet.
    pass(20 * SECOND).await;
    assert_eq!(world.state().await, StateName::InProgress);
    drop(feed);
    pass(20 * SECOND).await;
    world.probe.ended("complete", 1).await;
    assert_problem(&send(&app, payment("abc")).await, 409, "outcome-too-large");
    let mut read = 0;
    let error = loop {
        match unread.frame().await.unwrap() {
            Ok(frame) => read += frame.into_data().unwrap().len(),
            Err(error) => break error,
        }
    };
    assert!(read <= 2 * 1024 * 1024, "{read} bytes were kept for a caller who does not read");
    assert_eq!(error.to_string(), "the response was broken off");
}

#[tokio::test(start_paused = true)]
async fn h31_a_slow_caller_slows_the_service_down_and_gets_everything() {
    let (world, (upstream, mut feeds)) = (World::new(), streaming(None));
    let app = world.app_with(&upstream, Rule::default().max_stored_bytes(1000));
    let (feed, mut body) = begun(&app, &mut feeds, "one").await;
    for _ in 0..64 {
        feed.send(bodies::data(vec![7; 64 * 1024])).unwrap();
    }
    drop(feed);
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        pass(5 * SECOND).await;
    }
    assert_eq!(read, 64 * 64 * 1024 + 3);
    assert_eq!(world.state().await, StateName::Completed);
}

#[tokio::test]
async fn h31_a_waiter_gets_a_streamed_outcome_when_it_is_whole() {
    let (world, (upstream, mut feeds)) = (World::new(), streaming(None));
    let app = world.app(&upstream);
    let (feed, body) = begun(&app, &mut feeds, "one").await;
    let mut patient = payment("abc");
    patient.headers_mut().insert("prefer", "wait=30".parse().unwrap());
    let waiter = spawn(&app, patient);
    world.probe.arrived("settled").await;
    feed.send(bodies::data("two")).unwrap();
    drop(feed);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "onetwo");
    let waiter = waiter.await.unwrap();
    assert_eq!((waiter.text(), waiter.is_replay()), ("onetwo", true));
}
