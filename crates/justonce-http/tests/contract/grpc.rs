//! Unary calls of gRPC: h52.

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use justonce_core::store::Fault;
use justonce_core::{OnLapsed, Outcome, RecordId, Resolution, Resolve, Resolver, StateName, Why};
use justonce_http::{
    BodyMode, CallerLimits, FingerprintRule, GrpcStatus, KeyPresence, ResponseEffect, Rule,
    StatusRules, WhenBusy,
};

use crate::support::grpc::{answer, call_with, framed, lines, refusal, stream_with, trailers_only};
use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::{Upstream, status};
use crate::support::world::{SECOND, World, payment, request, rule, send, spawn};

/// Everything of a reply but what a replay may change.
fn content(reply: &Reply) -> impl PartialEq + std::fmt::Debug + use<> {
    let changed = ["idempotent-replayed", "cache-control", "date"];
    let mut headers: Vec<_> = reply
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .filter(|(name, _)| !changed.contains(&name.as_str()))
        .collect();
    headers.sort();
    (reply.code(), headers, reply.body.to_vec(), reply.trailers.clone())
}

#[tokio::test]
async fn h52_a_unary_call_is_executed_once_and_replayed_with_its_trailers() {
    let trailers = [
        ("grpc-status", "0"),
        ("grpc-message", ""),
        ("grpc-status-details-bin", "CAUSBG5vcGU"),
        ("x-ledger", "17"),
        ("x-ledger", "18"),
    ];
    let sent = lines(&trailers);
    let kept = sent.clone();
    let upstream = Upstream::answering(move || {
        let mut response = answer(b"\x08\x01", kept.clone());
        response.headers_mut().insert("x-initial", "a".parse().unwrap());
        response
    });
    let world = World::new();
    let app = world.app(&upstream);
    let first = send(&app, call_with("abc", b"\x0a\x03pay")).await;
    assert_eq!((first.code(), first.is_replay()), (200, false));
    assert_eq!(first.body, framed(b"\x08\x01"));
    assert_eq!(first.trailers.as_ref(), Some(&sent));
    for _ in 0..3 {
        let second = send(&app, call_with("abc", b"\x0a\x03pay")).await;
        assert!(second.is_replay());
        assert_eq!(content(&second), content(&first));
    }
    assert_eq!(upstream.calls(), 1);
    let heard = upstream.heard(1);
    assert_eq!(heard.body, framed(b"\x0a\x03pay"));
    assert_eq!(heard.header("te"), Some("trailers"));
    assert_eq!(heard.header("grpc-timeout"), Some("5S"));
    assert_eq!(heard.header("idempotency-key"), Some("abc"));
    assert_eq!(heard.header("idempotency-attempt"), Some("1"));
    assert!(heard.header("idempotency-fence").is_some());
}

#[tokio::test]
async fn h52_a_response_without_a_body_is_replayed_as_one() {
    let upstream = Upstream::answering(|| {
        trailers_only(lines(&[("grpc-status", "5"), ("grpc-message", "no such account")]))
    });
    let world = World::new();
    let app = world.app(&upstream);
    let first = send(&app, call_with("abc", b"")).await;
    let second = send(&app, call_with("abc", b"")).await;
    assert!(second.is_replay() && second.body.is_empty() && second.trailers.is_none());
    assert_eq!(second.header("grpc-status"), Some("5"));
    assert_eq!(content(&second), content(&first));
    assert_eq!(upstream.calls(), 1);
}

/// What becomes of an operation after this response.
async fn after(
    rule: Rule,
    response: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> StateName {
    let world = World::new();
    let upstream = Upstream::answering(response);
    let app = world.app_with(&upstream, rule);
    let first = send(&app, call_with("abc", b"pay")).await;
    assert_eq!(first.header("idempotency-outcome"), None, "it is between the service and us");
    let trailers = first.trailers.unwrap_or_default();
    assert!(!trailers.contains_key("idempotency-outcome"));
    let state = world.state().await;
    let second = send(&app, call_with("abc", b"pay")).await;
    match state {
        StateName::Completed => assert!(second.is_replay()),
        StateName::Unknown => assert_eq!(refusal(&second), Some((2, "outcome-unknown"))),
        _ => {}
    }
    let executions = if state == StateName::Absent { 2 } else { 1 };
    assert_eq!(upstream.calls(), executions);
    state
}

fn with(status: &'static str) -> [(&'static str, &'static str); 1] {
    [("grpc-status", status)]
}

#[tokio::test]
async fn h52_what_becomes_of_an_operation_is_told_by_the_status_of_grpc() {
    let (kept, free, unknown) = (StateName::Completed, StateName::Absent, StateName::Unknown);
    for (code, state) in [
        ("0", kept),
        ("1", unknown),
        ("2", unknown),
        ("3", kept),
        ("4", unknown),
        ("5", kept),
        ("6", kept),
        ("7", free),
        ("8", unknown),
        ("9", kept),
        ("10", kept),
        ("11", kept),
        ("12", kept),
        ("13", unknown),
        ("14", unknown),
        ("15", unknown),
        ("16", free),
        ("17", unknown),
        ("fine", unknown),
    ] {
        let alone = move || trailers_only(lines(&with(code)));
        assert_eq!(after(Rule::default(), alone).await, state, "{code}");
        // Who has sent a message has done something before.
        let state = if state == free { unknown } else { state };
        assert_eq!(after(Rule::default(), move || answer(b"", lines(&with(code)))).await, state);
    }
    // It did not say that it succeeded.
    assert_eq!(after(Rule::default(), || answer(b"", lines(&[]))).await, unknown);
    assert_eq!(after(Rule::default(), || status(200)).await, unknown);
    let twice = lines(&[("grpc-status", "0"), ("grpc-status", "0")]);
    assert_eq!(after(Rule::default(), move || answer(b"", twice.clone())).await, unknown);
    // Not of gRPC, but of something on the way.
    assert_eq!(after(Rule::default(), || status(502)).await, unknown);
    assert_eq!(after(Rule::default(), || status(401)).await, free);
}

#[tokio::test]
async fn h52_who_says_when_to_repeat_a_call_did_not_execute_it() {
    for status in ["8", "14"] {
        for (name, value, state) in [
            ("grpc-retry-pushback-ms", "250", StateName::Absent),
            ("grpc-retry-pushback-ms", "-1", StateName::Unknown),
            ("retry-after", "3", StateName::Absent),
        ] {
            let said = lines(&[("grpc-status", status), (name, value)]);
            let response = move || trailers_only(said.clone());
            assert_eq!(after(Rule::default(), response).await, state, "{status} {name} {value}");
        }
    }
    let said = lines(&[("grpc-status", "13"), ("grpc-retry-pushback-ms", "250")]);
    let state = after(Rule::default(), move || trailers_only(said.clone())).await;
    assert_eq!(state, StateName::Unknown);
}

#[tokio::test]
async fn h52_routes_and_services_may_say_otherwise() {
    for (effect, state) in [
        (ResponseEffect::Final, StateName::Completed),
        (ResponseEffect::NotExecuted, StateName::Absent),
        (ResponseEffect::Unknown, StateName::Unknown),
    ] {
        for status in [GrpcStatus::Ok, GrpcStatus::Aborted, GrpcStatus::Unavailable] {
            let rules = Rule::default().statuses(StatusRules::default().grpc(status, effect));
            let code: &'static str = Box::leak(status.code().to_string().into_boxed_str());
            let response = move || answer(b"", lines(&with(code)));
            assert_eq!(after(rules, response).await, state, "{status} {effect:?}");
        }
    }
    for (word, state) in [
        ("final", StateName::Completed),
        ("retryable", StateName::Absent),
        ("unknown", StateName::Unknown),
        ("?", StateName::Unknown),
    ] {
        let said = [("grpc-status", "13"), ("idempotency-outcome", word)];
        assert_eq!(after(Rule::default(), move || answer(b"", lines(&said))).await, state);
        assert_eq!(after(Rule::default(), move || trailers_only(lines(&said))).await, state);
        let head = move || {
            let mut response = answer(b"", lines(&with("13")));
            response.headers_mut().insert("idempotency-outcome", word.parse().unwrap());
            response
        };
        assert_eq!(after(Rule::default(), head).await, state, "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn h52_refusals_are_statuses_of_grpc() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let required = Rule::default().key_presence(KeyPresence::Required).max_request_bytes(100);
    let app = world.app_with(&upstream, required);
    let running = spawn(&app, call_with("abc", b"pay"));
    upstream.called(1).await;
    let busy = send(&app, call_with("abc", b"pay")).await;
    assert_eq!(refusal(&busy), Some((10, "in-flight")));
    assert!(busy.header("retry-after").is_some());
    let pushback: u64 = busy.header("grpc-retry-pushback-ms").unwrap().parse().unwrap();
    assert!(pushback > 0, "{pushback}");
    assert!(busy.header("link").unwrap().contains("/in-flight>"));
    let other = send(&app, call_with("abc", b"pay more")).await;
    assert_eq!(refusal(&other), Some((9, "key-mismatch")));
    assert_eq!(other.header("grpc-retry-pushback-ms"), Some("-1"));
    go.notify_one();
    running.await.unwrap();

    let missing = send(&app, stream_with(&[], Body::from(framed(b"pay")))).await;
    assert_eq!(refusal(&missing), Some((3, "key-missing")));
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    let invalid = send(&app, stream_with(&twice, Body::from(framed(b"pay")))).await;
    assert_eq!(refusal(&invalid), Some((3, "key-invalid")));
    let large = send(&app, call_with("large", &[7; 200])).await;
    assert_eq!(refusal(&large), Some((8, "body-too-large")));
    world.probe.fail("begin", Fault::NotApplied);
    let down = send(&app, call_with("down", b"pay")).await;
    assert_eq!(refusal(&down), Some((14, "store-unavailable")));
    assert_eq!(down.header("grpc-retry-pushback-ms"), Some("1000"));
    assert_eq!(upstream.calls(), 1);
    // Other requests get problems.
    assert_problem(&send(&app, payment("abc")).await, 503, "store-unavailable");
    let web = [("content-type", "application/grpc-web"), ("idempotency-key", "abc")];
    let web = request("POST", "/shop.Payments/Pay", &web, framed(b"pay"));
    assert_problem(&send(&app, web).await, 503, "store-unavailable");
}

#[tokio::test(start_paused = true)]
async fn h52_a_service_that_takes_too_long_or_crashes_leaves_it_unknown() {
    for (service, status) in [
        (Upstream::waiting().0, 4),
        (Upstream::new(async |_| -> Response<Body> { panic!("a crash") }), 2),
    ] {
        let world = World::new();
        let app = world.app_with(&service, Rule::default().handler_timeout(5 * SECOND));
        let first = send(&app, call_with("abc", b"pay")).await;
        assert_eq!(refusal(&first), Some((status, "upstream-failed")));
        let second = send(&app, call_with("abc", b"pay")).await;
        assert_eq!(refusal(&second), Some((2, "outcome-unknown")));
        assert_eq!((service.calls(), world.state().await), (1, StateName::Unknown));
    }
}

#[tokio::test]
async fn h52_a_limit_of_the_caller_is_a_used_up_resource() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let limits = CallerLimits::default().concurrent(1);
    let app = world.app_with(&upstream, Rule::default().caller_limits(limits));
    let running = spawn(&app, call_with("abc", b"pay"));
    upstream.called(1).await;
    let limited = send(&app, call_with("def", b"pay")).await;
    assert_eq!(refusal(&limited), Some((8, "limit-reached")));
    assert!(limited.header("grpc-retry-pushback-ms").is_some());
    go.notify_one();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h52_of_16_identical_calls_one_reaches_the_service() {
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let wait = std::sync::Arc::clone(&go);
    let upstream = Upstream::new(move |_| {
        let wait = std::sync::Arc::clone(&wait);
        async move {
            wait.notified().await;
            answer(b"done", lines(&with("0")))
        }
    });
    let world = World::new();
    let waiting = Rule::default().when_busy(WhenBusy::Wait(30 * SECOND));
    let apps = [world.app(&upstream), world.second().app_with(&upstream, waiting)];
    let calls: Vec<_> = (0..16).map(|n| spawn(&apps[n % 2], call_with("abc", b"pay"))).collect();
    upstream.called(1).await;
    go.notify_one();
    let mut executed = 0;
    for call in calls {
        let reply = call.await.unwrap();
        match refusal(&reply) {
            Some(refusal) => assert_eq!(refusal, (10, "in-flight")),
            None => {
                assert_eq!(reply.trailers.as_ref().unwrap()["grpc-status"], "0");
                assert_eq!(reply.body, framed(b"done"));
                executed += usize::from(!reply.is_replay());
            }
        }
    }
    assert_eq!((executed, upstream.calls()), (1, 1));
}

#[tokio::test]
async fn h52_messages_are_compared_byte_by_byte_and_json_by_its_fields() {
    let send_as = async |kind: &str, rule: Rule, first: &[u8], second: &[u8]| {
        let world = World::new();
        let upstream = Upstream::answering(|| answer(b"", lines(&with("0"))));
        let app = world.app_with(&upstream, rule);
        let headers = [("content-type", kind), ("idempotency-key", "abc")];
        send(&app, request("POST", "/shop.Payments/Pay", &headers, framed(first))).await;
        let second = request("POST", "/shop.Payments/Pay", &headers, framed(second));
        send(&app, second).await.is_replay()
    };
    let (one, other) = (br#"{"a": 1, "b": 2}"#, br#"{"b":2,"a":1.0}"#);
    assert!(send_as("application/grpc+json", Rule::default(), one, other).await);
    assert!(!send_as("application/grpc+json", Rule::default(), one, br#"{"a":1}"#).await);
    assert!(!send_as("application/grpc", Rule::default(), one, other).await);
    assert!(send_as("application/grpc", Rule::default(), one, one).await);
    let form = || Rule::default().fingerprint(FingerprintRule::default().body(BodyMode::Form));
    assert!(!send_as("application/grpc", form(), b"a=1&b=2", b"b=2&a=1").await);
    let none = FingerprintRule::default().body(BodyMode::Ignored);
    assert!(send_as("application/grpc", Rule::default().fingerprint(none), one, b"x").await);
}

/// The reply to a call whose operation an operator has completed like this.
async fn resolved(outcome: Outcome) -> Reply {
    let world = World::new();
    let upstream = Upstream::answering(|| answer(b"", lines(&with("14"))));
    let app = world.app_with(&upstream, rule(OnLapsed::Hold));
    send(&app, call_with("abc", b"pay")).await;
    let record = world.record().await;
    let id = RecordId::of(&record.subject.scope, &record.subject.key);
    let resolution = Resolution::Complete(outcome);
    let resolve = Resolve { resolution, by: Resolver::operator("ann"), why: Why::new("looked") };
    let _ = world.engine.resolve(id, record.fence, resolve).await.unwrap();
    let second = send(&app, call_with("abc", b"pay")).await;
    assert_eq!(upstream.calls(), 1);
    second
}

#[tokio::test]
async fn h52_what_is_stored_and_no_response_of_grpc_is_told_as_such() {
    let second = resolved(Outcome::bytes("done")).await;
    assert_eq!(refusal(&second), Some((6, "outcome-too-large")));
}

#[tokio::test]
async fn h52_trailers_are_read_as_earlier_releases_stored_them() {
    let stored = Outcome::builder()
        .status(200)
        .header("content-type", Bytes::from_static(b"application/grpc"))
        .header(":grpc-status", Bytes::from_static(b"0"))
        .header(":grpc-message", Bytes::from_static(b"paid"))
        .header(":content-length", Bytes::from_static(b"9"))
        .body(framed(b"done"));
    let second = resolved(stored.build().unwrap()).await;
    assert!(second.is_replay());
    assert_eq!(second.body, framed(b"done"));
    let trailers = second.trailers.unwrap();
    assert_eq!(trailers, lines(&[("grpc-status", "0"), ("grpc-message", "paid")]));
}
