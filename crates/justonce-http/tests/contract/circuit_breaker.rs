//! An open circuit breaker before the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use justonce_core::StoreErrorKind;
use justonce_http::{CircuitBreaker, Pattern, Rule, WhenStoreDown};
use tower::Layer;

use crate::support::reply::assert_problem;
use crate::support::upstream::Upstream;
use crate::support::world::{App, World, payment, request, send, spawn};

#[derive(Default)]
struct Breaker(AtomicBool);

impl CircuitBreaker for Breaker {
    fn open_for(&self, route: &str) -> Option<Duration> {
        let is_open = self.0.load(Ordering::SeqCst) && route == "default";
        is_open.then(|| Duration::from_millis(6500))
    }
}

fn gated(world: &World, upstream: &Upstream) -> (App, Arc<Breaker>) {
    let breaker = Arc::new(Breaker::default());
    let rule = Rule::default().when_store_down(WhenStoreDown::Pass);
    let layer = world.layer().circuit_breaker(breaker.clone()).default_rule(rule).build();
    (layer.layer(upstream.clone()), breaker)
}

#[tokio::test]
async fn h21_while_the_gate_is_closed_replays_are_answered_and_nothing_is_claimed() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let (app, breaker) = gated(&world, &upstream);
    go.notify_one();
    send(&app, payment("done")).await;
    let running = spawn(&app, payment("running"));
    upstream.called(2).await;
    breaker.0.store(true, Ordering::SeqCst);
    let begins = world.probe.count("begin");

    assert!(send(&app, payment("done")).await.is_replay());
    assert_problem(&send(&app, payment("running")).await, 409, "in-flight");
    let reply = send(&app, payment("new")).await;
    assert_problem(&reply, 503, "upstream-unreachable");
    assert_eq!(reply.header("retry-after"), Some("7"), "6.5 s, rounded up");
    assert_eq!((world.probe.count("begin"), world.states().await.len()), (begins, 2));

    go.notify_one();
    assert_eq!(running.await.unwrap().code(), 201, "what runs goes on");
    breaker.0.store(false, Ordering::SeqCst);
    go.notify_one();
    assert_eq!(send(&app, payment("new")).await.text(), "payment 3");
}

#[tokio::test]
async fn h21_a_closed_gate_is_not_opened_by_a_store_that_is_away() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let (app, breaker) = gated(&world, &upstream);
    breaker.0.store(true, Ordering::SeqCst);
    world.probe.fail_as("peek", StoreErrorKind::Unavailable);
    assert_problem(&send(&app, payment("abc")).await, 503, "store-unavailable");
    assert_eq!(upstream.calls(), 0);
    // It is for operations only: what is not protected asks the service itself.
    assert_eq!(send(&app, request("GET", "/a", &[], "")).await.code(), 201);
}

#[tokio::test]
async fn the_breaker_of_one_route_blocks_no_other() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let breaker = Arc::new(Breaker(AtomicBool::new(true)));
    let pattern = Pattern::parse("POST /other").unwrap();
    let layer = world.layer().circuit_breaker(breaker).route("other", pattern, Rule::default());
    let app = layer.build().layer(upstream.clone());
    assert_problem(&send(&app, payment("a")).await, 503, "upstream-unreachable");
    let other = request("POST", "/other", &[("idempotency-key", "a")], "{}");
    assert_eq!(send(&app, other).await.code(), 201);
}
