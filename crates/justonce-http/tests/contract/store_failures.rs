//! A store that cannot be reached: h35.

use justonce_core::engine::Limits;
use justonce_core::store::Fault;
use justonce_core::{OnLapsed, StateName, StoreErrorKind};
use justonce_http::{Rule, WhenBusy, WhenStoreDown};

use crate::support::reply::assert_problem;
use crate::support::upstream::Upstream;
use crate::support::world::{SECOND, World, pass, payment, rule, send, spawn};

fn passing() -> Rule {
    Rule::default().when_store_down(WhenStoreDown::Pass)
}

#[tokio::test]
async fn h35_without_a_store_nothing_is_executed() {
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostReply] {
        let (world, upstream) = (World::new(), Upstream::counting());
        let app = world.app(&upstream);
        world.probe.fail("begin", fault);
        let reply = send(&app, payment("abc")).await;
        assert_problem(&reply, 503, "store-unavailable");
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(reply.json()["retryable"], true);
        assert!(!reply.text().contains("injected"), "nothing about our inside: {}", reply.text());
        assert_eq!(upstream.calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn h35_the_key_is_free_once_the_store_is_back() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    world.probe.fail("begin", Fault::LostReply);
    send(&app, payment("abc")).await;
    world.probe.heal();
    pass(SECOND).await;
    assert_eq!(send(&app, payment("abc")).await.text(), "payment 1");
}

#[tokio::test]
async fn h35_a_route_may_let_requests_pass_and_their_answers_say_so() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, passing());
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::TimedOut, StoreErrorKind::Stopped] {
        world.probe.fail_as("begin", kind);
        let reply = send(&app, payment("abc")).await;
        assert_eq!(reply.code(), 201, "{kind:?}");
        assert_eq!(reply.header("idempotency-status"), Some("unprotected"));
        assert!(!reply.is_replay());
    }
    let heard = upstream.heard(3);
    assert_eq!(
        (heard.header("idempotency-key"), &heard.body[..]),
        (Some("abc"), &br#"{"amount":5}"#[..])
    );
    assert!(heard.operation.is_none() && heard.header("idempotency-fence").is_none());
}

#[tokio::test]
async fn h35_a_store_that_answers_nonsense_is_not_away() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, passing());
    for kind in [StoreErrorKind::Damaged, StoreErrorKind::Protocol] {
        world.probe.fail_as("begin", kind);
        assert_problem(&send(&app, payment("abc")).await, 503, "store-unavailable");
    }
    assert_eq!(upstream.calls(), 0, "the operation may be done: it never passes");
}

#[tokio::test]
async fn h35_a_duplicate_of_a_running_operation_never_passes() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, passing().when_busy(WhenBusy::Wait(10 * SECOND)));
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    world.probe.fail_as("settled", StoreErrorKind::Unavailable);
    assert_problem(&send(&app, payment("abc")).await, 503, "store-unavailable");
    go.notify_one();
    assert_eq!(first.await.unwrap().code(), 201);
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn h35_after_the_execution_the_reply_is_delivered_and_stored_later() {
    for fault in [Fault::NotApplied, Fault::LostRequest, Fault::LostReply] {
        let (world, upstream) = (World::new(), Upstream::counting());
        let app = world.app_with(&upstream, rule(OnLapsed::Hold));
        world.probe.fail("complete", fault);
        let reply = send(&app, payment("abc")).await;
        assert_eq!((reply.code(), reply.text()), (201, "payment 1"));
        pass(60 * SECOND).await;
        assert!(world.probe.count("complete") > 5, "it is tried on");
        assert_eq!(world.probe.count("release"), 0, "and never released");
        let meanwhile = send(&app, payment("abc")).await;
        if fault != Fault::LostReply {
            assert_problem(&meanwhile, 409, "in-flight");
        }
        world.probe.heal();
        pass(10 * SECOND).await;
        assert_eq!(world.state().await, StateName::Completed);
        assert_eq!(send(&app, payment("abc")).await.text(), "payment 1");
        assert_eq!(upstream.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn h35_a_store_that_does_not_come_back_in_time_leaves_the_operation_unknown() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    world.probe.fail("complete", Fault::NotApplied);
    world.probe.fail("abandon", Fault::NotApplied);
    assert_eq!(send(&app, payment("abc")).await.code(), 201);
    pass(3600 * SECOND).await;
    world.probe.heal();
    assert_problem(&send(&app, payment("abc")).await, 409, "outcome-unknown");
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn h35_too_many_executions_are_refused_without_a_claim() {
    let limits = Limits { max_concurrent: 1, queue_timeout: SECOND, ..Limits::default() };
    let (world, (upstream, go)) = (World::with(limits), Upstream::waiting());
    let app = world.app_with(&upstream, passing());
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    let reply = send(&app, payment("other")).await;
    assert_problem(&reply, 503, "overloaded");
    assert_eq!(reply.header("retry-after"), Some("1"));
    go.notify_one();
    assert_eq!(first.await.unwrap().code(), 201);
    assert_eq!(upstream.calls(), 1, "being full is no store that is away");
}
