//! What happens between the claim and the outcome: h18 and h21 to h25.

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use justonce_core::store::Fault;
use justonce_core::{OnLapsed, RecordId, StateName, UnknownReason};
use justonce_http::{ResponseEffect, Rule, UnknownListener};
use tower::Layer;

use crate::support::bodies;
use crate::support::probe::Probe;
use crate::support::reply::assert_problem;
use crate::support::upstream::{Upstream, created, status};
use crate::support::world::{SECOND, World, call, pass, payment, policy, rule, send, spawn};
use http_body_util::BodyExt;

#[tokio::test]
async fn h18_the_claim_is_stored_before_the_service_is_called() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    world.probe.hold("begin");
    let first = spawn(&app, payment("abc"));
    world.probe.arrived("begin").await;
    assert_eq!(upstream.calls(), 0);
    world.probe.let_go();
    assert_eq!(first.await.unwrap().code(), 201);
    assert_eq!(world.probe.log(), ["begin", "complete"]);
}

#[tokio::test]
async fn h18_the_outcome_is_stored_before_the_caller_has_a_short_answer() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    world.probe.hold("complete");
    let first = spawn(&app, payment("abc"));
    world.probe.arrived("complete").await;
    assert!(!first.is_finished(), "not even the head");
    world.probe.let_go();
    assert_eq!(first.await.unwrap().text(), "payment 1");
}

/// Starts an operation with a long answer of two frames and reads the first.
async fn long_answer(
    world: &World,
    announced: bool,
) -> Response<justonce_http::ResponseBody<Body>> {
    const FRAME: usize = 100_000;
    let exact = announced.then_some(2 * FRAME as u64);
    let upstream = Upstream::answering(move || {
        let frames = ["a", "b"].map(|text| bodies::data(text.repeat(FRAME)));
        Response::new(bodies::of(frames, exact))
    });
    world.probe.hold("complete");
    call(&world.app(&upstream), payment("abc")).await
}

#[tokio::test]
async fn h18_the_outcome_is_stored_before_the_last_bytes_of_a_long_answer() {
    let world = World::new();
    let mut answer = long_answer(&world, true).await.into_body();
    let first = answer.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first.first(), Some(&b'a'));
    world.probe.arrived("complete").await;
    let rest = tokio::spawn(async move { answer.collect().await.unwrap().to_bytes() });
    tokio::task::yield_now().await;
    assert!(!rest.is_finished(), "the last frame waits for the store");
    assert_eq!(world.state().await, StateName::InProgress);
    world.probe.let_go();
    assert_eq!(rest.await.unwrap().len(), 100_000);
    assert_eq!(world.state().await, StateName::Completed);
}

#[tokio::test]
async fn h18_the_outcome_is_stored_before_the_end_of_a_chunked_answer() {
    let world = World::new();
    let mut answer = long_answer(&world, false).await.into_body();
    for _ in 0..2 {
        answer.frame().await.unwrap().unwrap();
    }
    world.probe.arrived("complete").await;
    let end = tokio::spawn(async move { answer.frame().await.is_none() });
    tokio::task::yield_now().await;
    assert!(!end.is_finished(), "the end waits for the store");
    world.probe.let_go();
    assert!(end.await.unwrap());
    assert_eq!(world.state().await, StateName::Completed);
}

/// A service that fails in some way at first and then works.
fn failing_first(answer: impl Fn() -> Response<Body> + Send + Sync + 'static) -> Upstream {
    Upstream::new(move |heard| {
        let answer = if heard.number == 1 { answer() } else { created(heard.number) };
        std::future::ready(answer)
    })
}

fn with_effect(code: u16, effect: ResponseEffect) -> Response<Body> {
    let mut answer = status(code);
    answer.extensions_mut().insert(effect);
    answer
}

#[tokio::test]
async fn h21_a_service_that_was_not_reached_frees_the_key_at_once() {
    let world = World::new();
    let upstream = failing_first(|| with_effect(502, ResponseEffect::NotExecuted));
    let app = world.app(&upstream);
    let first = send(&app, payment("abc")).await;
    assert_eq!((first.code(), first.text(), first.is_replay()), (502, "502", false));
    assert_eq!(world.state().await, StateName::Absent);
    let retry = send(&app, payment("abc")).await;
    assert_eq!((retry.code(), retry.is_replay()), (201, false));
    assert_eq!(upstream.calls(), 2);
}

#[tokio::test]
async fn h22_a_service_that_failed_after_it_was_reached_is_held_as_unknown() {
    type Failure = fn() -> Response<Body>;
    let failures: [(u16, Failure); 4] = [
        (502, || status(502)),
        (504, || status(504)),
        (502, || with_effect(502, ResponseEffect::Unknown)),
        // It closed the connection in the middle of a short answer.
        (502, || Response::new(bodies::of([bodies::data("ab"), bodies::Piece::Error], Some(9)))),
    ];
    for (code, failure) in failures {
        let world = World::new();
        let upstream = failing_first(failure);
        let app = world.app(&upstream);
        assert_eq!(send(&app, payment("abc")).await.code(), code, "the client hears it now");
        assert_eq!(world.state().await, StateName::Unknown);
        for _ in 0..2 {
            let retry = send(&app, payment("abc")).await;
            assert_problem(&retry, 409, "outcome-unknown");
            assert_eq!(retry.json()["retryable"], false);
        }
        assert_eq!(upstream.calls(), 1, "nothing is executed again");
    }
}

#[tokio::test]
async fn h22_under_rerun_the_next_request_executes_again() {
    let world = World::new();
    let upstream = failing_first(|| status(502));
    let app = world.app_with(&upstream, rule(OnLapsed::Rerun));
    assert_eq!(send(&app, payment("abc")).await.code(), 502);
    let retry = send(&app, payment("abc")).await;
    assert_eq!((retry.code(), retry.is_replay()), (201, false));
    assert_eq!(upstream.heard(2).header("idempotency-attempt"), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn h22_a_service_that_does_not_answer_in_time_is_unknown() {
    let (world, (upstream, _go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, Rule::default().handler_timeout(5 * SECOND));
    assert_problem(&send(&app, payment("abc")).await, 504, "upstream-failed");
    assert_eq!(world.state().await, StateName::Unknown);
    assert_problem(&send(&app, payment("abc")).await, 409, "outcome-unknown");
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn h23_the_lease_is_renewed_while_the_service_works() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app(&upstream);
    let first = spawn(&app, payment("abc"));
    pass(300 * SECOND).await;
    assert!(world.probe.count("renew") >= 29, "{}", world.probe.count("renew"));
    assert_problem(&send(&app, payment("abc")).await, 409, "in-flight");
    go.notify_one();
    assert_eq!(first.await.unwrap().code(), 201);
    let renewals = world.probe.count("renew");
    pass(300 * SECOND).await;
    assert_eq!(world.probe.count("renew"), renewals, "nothing is renewed after the end");
}

#[tokio::test(start_paused = true)]
async fn h23_renewal_ends_at_the_cap() {
    let (world, (upstream, _go)) = (World::new(), Upstream::waiting());
    let policy = policy(OnLapsed::Hold).lease(30 * SECOND).lease_cap(60 * SECOND);
    let app = world.app_with(&upstream, Rule::default().with_policy(policy.build().unwrap()));
    let first = spawn(&app, payment("abc"));
    pass(59 * SECOND).await;
    assert!(!first.is_finished());
    pass(2 * SECOND).await;
    assert_problem(&first.await.unwrap(), 504, "upstream-failed");
    assert_problem(&send(&app, payment("abc")).await, 409, "outcome-unknown");
}

#[tokio::test(start_paused = true)]
async fn h23_renewal_ends_with_the_process() {
    let (world, (upstream, _go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, rule(OnLapsed::Hold));
    let other = world.second();
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    // A process that has died renews nothing and says nothing.
    kill(&world.probe);
    pass(31 * SECOND).await;
    let retry = send(&other.app(&upstream), payment("abc")).await;
    assert_problem(&retry, 409, "outcome-unknown");
    first.abort();
    assert_eq!(upstream.calls(), 1);
}

/// Nothing of this process reaches the store any more.
fn kill(probe: &Probe) {
    for call in ["begin", "peek", "renew", "complete", "abandon", "release"] {
        probe.hold(call);
    }
}

#[tokio::test(start_paused = true)]
async fn h24_after_a_takeover_the_old_owners_client_gets_the_winners_outcome() {
    let (world, (slow, go)) = (World::new(), Upstream::waiting());
    let old = world.app_with(&slow, rule(OnLapsed::Rerun));
    world.probe.fail("renew", Fault::NotApplied);
    let first = spawn(&old, payment("abc"));
    slow.called(1).await;
    pass(31 * SECOND).await;

    let winner = Upstream::answering(|| Response::new(Body::from("winner")));
    let second = world.second();
    let won = send(&second.app_with(&winner, rule(OnLapsed::Rerun)), payment("abc")).await;
    assert_eq!((won.text(), won.is_replay()), ("winner", false));
    assert_eq!(winner.heard(1).header("idempotency-attempt"), Some("2"));

    go.notify_one();
    let first = first.await.unwrap();
    assert_eq!((first.code(), first.text(), first.is_replay()), (200, "winner", true));
    assert_eq!(world.state().await, StateName::Completed);
}

#[tokio::test(start_paused = true)]
async fn h24_without_a_winner_the_old_owners_client_gets_409() {
    let (world, (slow, go)) = (World::new(), Upstream::waiting());
    let old = world.app_with(&slow, rule(OnLapsed::Rerun));
    world.probe.fail("renew", Fault::NotApplied);
    let first = spawn(&old, payment("abc"));
    slow.called(1).await;
    pass(31 * SECOND).await;

    let (other, finish) = Upstream::waiting();
    let second = world.second();
    let app = second.app_with(&other, rule(OnLapsed::Rerun));
    let winner = spawn(&app, payment("abc"));
    other.called(1).await;
    go.notify_one();
    let first = first.await.unwrap();
    assert_problem(&first, 409, "superseded");
    assert_eq!(first.json()["retryable"], true);
    finish.notify_one();
    assert_eq!(winner.await.unwrap().code(), 201, "the old completion changed nothing");
}

#[tokio::test]
async fn h25_the_service_hears_the_key_the_attempt_and_the_fence_from_us_only() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let mut forged = payment("\"abc\";v=1");
    for name in ["idempotency-attempt", "idempotency-fence", "idempotency-record"] {
        forged.headers_mut().append(name, "999999".parse().unwrap());
        forged.headers_mut().append(name, "888888".parse().unwrap());
    }
    send(&app, forged).await;
    let heard = upstream.heard(1);
    assert_eq!(heard.header("idempotency-key"), Some("abc"), "one spelling, whatever came");
    assert_eq!(heard.header("idempotency-attempt"), Some("1"));
    let fence = heard.operation.as_ref().unwrap().fence().get().to_string();
    assert_eq!(heard.header("idempotency-fence"), Some(fence.as_str()));
    let record = heard.operation.as_ref().unwrap().context().operation().id().to_string();
    assert_eq!(heard.header("idempotency-record"), Some(record.as_str()));
    assert_eq!(heard.body, r#"{"amount":5}"#);
}

#[tokio::test]
async fn h25_forged_copies_are_removed_from_unprotected_requests_too() {
    use crate::support::world::request;
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let forged = [("idempotency-attempt", "7"), ("idempotency-fence", "9"), ("x-own", "1")];
    for (number, method) in ["POST", "PUT", "GET"].iter().enumerate() {
        send(&app, request(method, "/a", &forged, "")).await;
        let heard = upstream.heard(number + 1);
        assert_eq!(heard.header("idempotency-attempt"), None, "{method}");
        assert_eq!(heard.header("idempotency-fence"), None, "{method}");
        assert_eq!(heard.header("x-own"), Some("1"));
    }
}

#[tokio::test]
async fn h25_the_fence_grows_and_the_key_stays() {
    let world = World::new();
    let upstream = failing_first(|| status(500));
    let app = world.app_with(&upstream, rule(OnLapsed::Rerun));
    send(&app, payment("abc")).await;
    send(&app, payment("abc")).await;
    let fence = |number| upstream.heard(number).header("idempotency-fence").unwrap().to_owned();
    assert!(fence(2).parse::<u64>().unwrap() > fence(1).parse::<u64>().unwrap());
    assert_eq!(upstream.heard(2).header("idempotency-key"), Some("abc"));
}

#[tokio::test]
async fn h25_where_only_strings_are_spoken_the_service_hears_one() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = Rule::default().key_syntax(justonce_http::KeySyntax::Strict);
    send(&world.app_with(&upstream, rule), payment(r#""a\"b""#)).await;
    assert_eq!(upstream.heard(1).header("idempotency-key"), Some(r#""a\"b""#));
}

#[tokio::test]
async fn h22_the_reason_is_kept_for_operators() {
    let world = World::new();
    let app = world.app(&failing_first(|| status(504)));
    send(&app, payment("abc")).await;
    let justonce_core::State::Unknown(unknown) = world.record().await.state else {
        panic!("it is unknown");
    };
    assert_eq!(unknown.reason, UnknownReason::Reported);
}

/// Remembers what it was told.
#[derive(Default)]
struct Listener(std::sync::Mutex<Vec<(String, RecordId)>>);

impl UnknownListener for Listener {
    fn on_unknown(&self, route: &str, id: RecordId) {
        self.0.lock().unwrap().push((route.to_owned(), id));
    }
}

#[tokio::test]
async fn h22_a_duplicate_that_meets_an_unknown_operation_tells_those_who_ask() {
    let (world, listener) = (World::new(), Arc::new(Listener::default()));
    let upstream = failing_first(|| status(502));
    let layer = world.layer().unknown_listener(Arc::<Listener>::clone(&listener)).build();
    let app = layer.layer(upstream.clone());
    send(&app, payment("abc")).await;
    assert!(listener.0.lock().unwrap().is_empty(), "nobody waits for it yet");
    assert_problem(&send(&app, payment("abc")).await, 409, "outcome-unknown");
    let subject = world.record().await.subject;
    let id = RecordId::of(&subject.scope, &subject.key);
    assert_eq!(*listener.0.lock().unwrap(), [("default".to_owned(), id)]);
    assert_eq!(upstream.calls(), 1);
}
