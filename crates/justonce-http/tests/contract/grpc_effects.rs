//! What becomes of calls of gRPC whose responses contradict themselves or come from elsewhere: h52.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response};
use justonce_core::{OnLapsed, Outcome, RecordId, Resolution, Resolve, Resolver, StateName, Why};
use justonce_http::{KeyPresence, Rule};

use crate::support::bodies::{self, Piece};
use crate::support::grpc::{answer, call_with, framed, lines, refusal, stream_with, trailers_only};
use crate::support::socket::{exchange, serve};
use crate::support::upstream::{Upstream, status};
use crate::support::world::{SECOND, World, rule, send, spawn};

/// What becomes of an operation after this response, and how often it was executed after a retry.
async fn after(response: impl Fn() -> Response<Body> + Send + Sync + 'static) -> StateName {
    let world = World::new();
    let upstream = Upstream::answering(response);
    let app = world.app(&upstream);
    send(&app, call_with("abc", b"pay")).await;
    let state = world.state().await;
    send(&app, call_with("abc", b"pay")).await;
    let executions = if state == StateName::Absent { 2 } else { 1 };
    assert_eq!(upstream.calls(), executions, "{state:?}");
    state
}

fn with_head(mut response: Response<Body>, name: &'static str, value: &str) -> Response<Body> {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

#[tokio::test]
async fn h52_what_something_on_the_way_answered_is_replayed_as_it_was() {
    for code in [400, 404, 415] {
        let world = World::new();
        let upstream = Upstream::answering(move || status(code));
        let app = world.app(&upstream);
        let first = send(&app, call_with("abc", b"pay")).await;
        assert_eq!(world.state().await, StateName::Completed);
        let second = send(&app, call_with("abc", b"pay")).await;
        assert!(second.is_replay(), "{second:?}");
        assert_eq!((second.code(), &second.body), (first.code(), &first.body));
        assert_eq!(second.header("grpc-status"), None, "nobody says that it is done");
        assert_eq!(upstream.calls(), 1);
    }
}

#[tokio::test]
async fn h52_a_call_that_failed_for_good_is_not_told_to_be_done() {
    let world = World::new();
    let upstream = Upstream::answering(|| answer(b"", lines(&[("grpc-status", "14")])));
    let app = world.app_with(&upstream, rule(OnLapsed::Hold));
    send(&app, call_with("abc", b"pay")).await;
    let record = world.record().await;
    let id = RecordId::of(&record.subject.scope, &record.subject.key);
    let resolution = Resolution::Fail(Outcome::bytes("the bank has declined it"));
    let resolve = Resolve { resolution, by: Resolver::operator("ann"), why: Why::new("looked") };
    let _ = world.engine.resolve(id, record.fence, resolve).await.unwrap();
    let second = send(&app, call_with("abc", b"pay")).await;
    assert_eq!(upstream.calls(), 1);
    assert_ne!(second.header("grpc-status"), Some("6"), "{second:?}");
    assert_eq!((second.code(), second.text()), (500, "the bank has declined it"));
}

#[tokio::test]
async fn h52_two_words_that_differ_permit_no_other_execution() {
    for (first, last) in
        [("retryable", "final"), ("retryable", "unknown"), ("final", "retryable"), ("final", "?")]
    {
        let response = move || {
            let last = HeaderValue::from_static(last);
            let mut trailers = lines(&[("grpc-status", "0")]);
            trailers.insert("idempotency-outcome", last);
            with_head(answer(b"paid", trailers), "idempotency-outcome", first)
        };
        assert_eq!(after(response).await, StateName::Unknown, "{first}, then {last}");
    }
    for (word, state) in [
        ("final", StateName::Completed),
        ("retryable", StateName::Absent),
        ("unknown", StateName::Unknown),
    ] {
        let response = move || {
            let trailers = lines(&[("grpc-status", "13"), ("idempotency-outcome", word)]);
            with_head(answer(b"", trailers), "idempotency-outcome", word)
        };
        assert_eq!(after(response).await, state, "{word}, twice");
    }
}

#[tokio::test]
async fn h52_a_status_in_the_head_and_another_one_in_the_trailers_are_two() {
    for (first, last) in [("0", "14"), ("0", "16"), ("14", "0"), ("0", "0")] {
        let response = move || {
            let pushback = ("grpc-retry-pushback-ms", "1");
            let trailers = lines(&[("grpc-status", last), pushback]);
            with_head(answer(b"", trailers), "grpc-status", first)
        };
        assert_eq!(after(response).await, StateName::Unknown, "{first}, then {last}");
    }
}

#[tokio::test]
async fn h52_after_a_message_no_status_says_that_nothing_was_done() {
    let pushback = ("grpc-retry-pushback-ms", "1");
    for said in [
        &[("grpc-status", "16")][..],
        &[("grpc-status", "7")],
        &[("grpc-status", "14"), pushback],
        &[("grpc-status", "8"), pushback],
    ] {
        let alone = lines(said);
        assert_eq!(after(move || trailers_only(alone.clone())).await, StateName::Absent);
        let trailing = lines(said);
        let without = move || {
            let response = Response::builder().header("content-type", "application/grpc");
            let trailers = [Piece::Trailers(trailing.clone())];
            response.body(bodies::of(trailers, None)).unwrap()
        };
        assert_eq!(after(without).await, StateName::Absent);
        let trailing = lines(said);
        let whole = move || answer(b"paid", trailing.clone());
        assert_eq!(after(whole).await, StateName::Unknown, "{said:?}");
        // In pieces.
        let trailing = lines(said);
        let (world, upstream) = (
            World::new(),
            Upstream::new(move |_| {
                let trailing = trailing.clone();
                async move {
                    let (feed, body) = bodies::fed(None);
                    tokio::spawn(async move {
                        tokio::task::yield_now().await;
                        feed.send(bodies::data(framed(b"paid"))).unwrap();
                        tokio::task::yield_now().await;
                        feed.send(Piece::Trailers(trailing)).unwrap();
                    });
                    Response::builder()
                        .header("content-type", "application/grpc")
                        .body(body)
                        .unwrap()
                }
            }),
        );
        send(&world.app(&upstream), call_with("abc", b"pay")).await;
        assert_eq!(world.state().await, StateName::Unknown, "{said:?}");
    }
}

#[tokio::test]
async fn h52_a_response_that_is_broken_off_does_not_look_whole_over_http_1() {
    let upstream = Upstream::new(async |_| {
        let (feed, body) = bodies::fed(None);
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            feed.send(bodies::data("half")).unwrap();
            tokio::task::yield_now().await;
            feed.send(Piece::Error).unwrap();
        });
        Response::builder().header("content-type", "application/grpc").body(body).unwrap()
    });
    let address = serve(World::new().router(&upstream, Rule::default())).await;
    let request = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: abc\r\nConnection: close\r\n\
                   Content-Type: application/grpc\r\nContent-Length: 5\r\n\r\n\0\0\0\0\0";
    let reply = exchange(address, request).await;
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("half"), "{reply}");
    assert!(!reply.ends_with("\r\n0\r\n\r\n"), "it looks whole: {reply}");
}

#[tokio::test]
async fn h52_nothing_in_our_name_comes_from_the_service_without_protection() {
    let ours = ["idempotency-outcome", "idempotency-problem", "idempotency-status"];
    let upstream = Upstream::answering(move || {
        let mut said: HeaderMap = lines(&[("grpc-status", "0")]);
        let mut response = Response::builder().header("content-type", "application/grpc");
        for name in ours.into_iter().chain(["idempotent-replayed"]) {
            said.insert(name, HeaderValue::from_static("true"));
            response = response.header(name, "true");
        }
        let frames = [bodies::data(framed(b"")), Piece::Trailers(said)];
        response.body(bodies::of(frames, None)).unwrap()
    });
    let world = World::new();
    let reply = send(&world.app(&upstream), stream_with(&[], Body::from(framed(b"pay")))).await;
    assert_eq!(reply.header("idempotency-status"), Some("unprotected"));
    assert_eq!(reply.header("idempotency-problem"), None);
    let trailers = reply.trailers.unwrap();
    assert_eq!(trailers, lines(&[("grpc-status", "0")]));
}

#[tokio::test(start_paused = true)]
async fn h52_empty_frames_do_not_keep_a_call_open() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let (feed, body) = bodies::fed(None);
    let running = spawn(&world.app(&upstream), stream_with(&[("idempotency-key", "abc")], body));
    feed.send(bodies::data(framed(b"pay"))).unwrap();
    for _ in 0..20 {
        tokio::time::advance(6 * SECOND).await;
        tokio::task::yield_now().await;
        // Refused once the call is.
        let _ = feed.send(bodies::data(""));
        tokio::task::yield_now().await;
    }
    assert!(running.is_finished(), "it neither goes on nor ends for two minutes");
    assert_eq!(refusal(&running.await.unwrap()), Some((3, "request-invalid")));
    assert_eq!(upstream.calls(), 0);
}

/// Where keys are off, a response is the service's, whatever it says of replays.
#[tokio::test]
async fn h52_where_keys_are_off_a_response_stays_as_it_is() {
    let world = World::new();
    let upstream = Upstream::answering(|| with_head(status(200), "idempotent-replayed", "true"));
    let app = world.app_with(&upstream, Rule::default().key_presence(KeyPresence::Off));
    let reply = send(&app, call_with("abc", b"pay")).await;
    assert_eq!((reply.text(), reply.header("grpc-status")), ("200", None));
}
