//! Limits per caller: h47.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use justonce_core::engine::Limits;
use justonce_core::{OnLapsed, StateName, StoreErrorKind};
use justonce_http::{
    CallerLimits, CallerUsage, ClientAddress, Cors, Rate, Rule, ScopePart, WhenStoreDown,
};
use tower::Layer;

use crate::logs_and_metrics::Counters;
use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::Upstream;
use crate::support::world::{
    App, HOUR, SECOND, World, pass, payment, policy, request, send, spawn,
};

const MINUTE: Duration = Duration::from_secs(60);

fn limited(limits: CallerLimits) -> Rule {
    Rule::default().caller_limits(limits)
}

fn rate(operations: u32, per: Duration) -> CallerLimits {
    CallerLimits::default().rate(Rate::new(operations, per))
}

/// A payment of a caller.
fn by(caller: &str, key: &str) -> Request<Body> {
    let headers = [("authorization", caller), ("idempotency-key", key)];
    request("POST", "/payments", &headers, "{}")
}

#[track_caller]
fn assert_limited(reply: &Reply, limit: &str) {
    assert_problem(reply, 429, "limit-reached");
    assert_eq!(reply.json()["limit"], limit);
    assert_eq!(reply.json()["retryable"], true);
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn h47_over_the_rate_nothing_is_claimed_and_others_go_on() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, limited(rate(2, MINUTE)));
    for key in ["a", "b"] {
        assert_eq!(send(&app, by("ann", key)).await.code(), 201);
    }
    let begins = world.probe.count("begin");
    let reply = send(&app, by("ann", "c")).await;
    assert_limited(&reply, "rate");
    assert_eq!(reply.header("retry-after"), Some("30"), "a token every 30 s");
    assert_eq!((world.probe.count("begin"), world.states().await.len()), (begins, 2));

    assert_eq!(send(&app, by("bob", "c")).await.code(), 201);
    pass(30 * SECOND).await;
    let reply = send(&app, by("ann", "c")).await;
    assert_eq!((reply.code(), reply.is_replay()), (201, false), "the key was never used");
    assert_limited(&send(&app, by("ann", "d")).await, "rate");
    assert_eq!(upstream.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn h47_replays_and_other_answers_to_duplicates_are_not_limited() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, limited(rate(2, HOUR).concurrent(1)));
    go.notify_one();
    assert_eq!(send(&app, by("ann", "done")).await.code(), 201);
    let running = spawn(&app, by("ann", "running"));
    upstream.called(2).await;
    for _ in 0..10 {
        assert!(send(&app, by("ann", "done")).await.is_replay());
        assert_problem(&send(&app, by("ann", "running")).await, 409, "in-flight");
        let other = [("authorization", "ann"), ("idempotency-key", "done")];
        let reply = send(&app, request("POST", "/payments", &other, "[]")).await;
        assert_problem(&reply, 422, "key-mismatch");
        assert_limited(&send(&app, by("ann", "new")).await, "concurrent");
    }
    // One that waits for the running one gets its outcome.
    let mut patient = by("ann", "running");
    patient.headers_mut().insert("prefer", "wait=10".parse().unwrap());
    let waiting = spawn(&app, patient);
    pass(SECOND).await;
    go.notify_one();
    assert_eq!(running.await.unwrap().code(), 201);
    assert!(waiting.await.unwrap().is_replay());
    assert_limited(&send(&app, by("ann", "new")).await, "rate");
    assert!(send(&app, by("ann", "done")).await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn h47_duplicates_take_no_tokens() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, limited(rate(2, HOUR)));
    assert_eq!(send(&app, by("ann", "a")).await.code(), 201);
    for _ in 0..20 {
        assert!(send(&app, by("ann", "a")).await.is_replay());
    }
    assert_eq!(send(&app, by("ann", "b")).await.code(), 201);
}

#[tokio::test(start_paused = true)]
async fn h47_a_replay_takes_no_place_from_a_new_operation() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, limited(rate(2, HOUR).concurrent(1)));
    assert_eq!(send(&app, by("ann", "done")).await.code(), 201);
    // The store takes its time for both.
    world.probe.hold("begin");
    world.probe.hold("peek");
    let replay = spawn(&app, by("ann", "done"));
    pass(SECOND).await;
    let new = spawn(&app, by("ann", "new"));
    pass(SECOND).await;
    world.probe.let_go();
    assert!(replay.await.unwrap().is_replay());
    assert_eq!(new.await.unwrap().code(), 201);
    assert_limited(&send(&app, by("ann", "third")).await, "rate");
}

#[tokio::test(start_paused = true)]
async fn h47_a_lapsed_claim_becomes_unknown_with_its_duplicate() {
    let (world, (upstream, _go)) = (World::new(), Upstream::waiting());
    let lease = policy(OnLapsed::Hold).lease(SECOND).build().unwrap();
    let app = world.app_with(&upstream, limited(rate(9, HOUR)).with_policy(lease));
    // Its owner is as good as dead.
    for step in ["renew", "abandon", "complete", "fail", "release"] {
        world.probe.hold(step);
    }
    let _lost = spawn(&app, by("ann", "k"));
    upstream.called(1).await;
    let other = world.second();
    pass(HOUR).await;
    assert_eq!(other.record().await.state_name(), StateName::InProgress);
    let app = other.app_with(&upstream, limited(rate(9, HOUR)));
    assert_problem(&send(&app, by("ann", "k")).await, 409, "outcome-unknown");
    assert_eq!(other.record().await.state_name(), StateName::Unknown);
}

#[tokio::test(start_paused = true)]
async fn h47_the_scheme_of_a_credential_has_no_case() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, limited(rate(2, HOUR)));
    assert_eq!(send(&app, by("Bearer x", "a")).await.code(), 201);
    assert!(send(&app, by("bearer x", "a")).await.is_replay(), "one caller, one operation");
    assert_eq!(send(&app, by("BEARER  x", "b")).await.code(), 201);
    assert_limited(&send(&app, by("bearer x", "c")).await, "rate");
    assert_eq!(send(&app, by("bearer X", "c")).await.code(), 201, "the token has a case");
    // Also where the header names something else.
    for part in [
        ScopePart::Principal(http::header::AUTHORIZATION),
        ScopePart::Tenant(http::header::AUTHORIZATION),
    ] {
        let rule = limited(rate(2, HOUR)).scope(vec![part]);
        let app = world.app_with(&upstream, rule);
        assert_eq!(send(&app, by("Basic YTpi", "d")).await.code(), 201);
        assert!(send(&app, by("basic YTpi", "d")).await.is_replay());
    }
}

#[tokio::test(start_paused = true)]
async fn h47_slow_calls_of_one_caller_do_not_stop_others() {
    let limits = Limits { max_concurrent: 5, queue_timeout: SECOND, ..Limits::default() };
    let (world, (upstream, go)) = (World::with(limits), Upstream::waiting());
    let app = world.app_with(&upstream, limited(CallerLimits::default().concurrent(3)));
    let mut running = Vec::new();
    for number in 1..=3 {
        running.push(spawn(&app, by("ann", &format!("slow-{number}"))));
        upstream.called(number).await;
    }
    for key in ["4", "5", "6"] {
        let reply = send(&app, by("ann", key)).await;
        assert_limited(&reply, "concurrent");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    let other = spawn(&app, by("bob", "1"));
    upstream.called(4).await;
    go.notify_one();
    assert_eq!(running.remove(0).await.unwrap().code(), 201);
    // The place is free again at once.
    running.push(spawn(&app, by("ann", "4")));
    upstream.called(5).await;
    for _ in 0..4 {
        go.notify_one();
        pass(SECOND).await;
    }
    assert_eq!(other.await.unwrap().code(), 201);
    for one in running {
        assert_eq!(one.await.unwrap().code(), 201);
    }
}

#[tokio::test(start_paused = true)]
async fn h47_an_operation_whose_caller_left_still_counts() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, limited(CallerLimits::default().concurrent(1)));
    let left = spawn(&app, by("ann", "a"));
    upstream.called(1).await;
    left.abort();
    assert!(left.await.is_err());
    assert_limited(&send(&app, by("ann", "b")).await, "concurrent");
    go.notify_one();
    pass(SECOND).await;
    assert!(send(&app, by("ann", "a")).await.is_replay());
    go.notify_one();
    assert_eq!(send(&app, by("ann", "b")).await.code(), 201);
}

#[tokio::test(start_paused = true)]
async fn h47_a_place_is_free_again_whatever_became_of_the_operation() {
    let (world, upstream) = (
        World::new(),
        Upstream::new(async |heard| {
            assert!(heard.number != 1, "the service crashes once");
            crate::support::upstream::status(503)
        }),
    );
    let app = world.app_with(&upstream, limited(CallerLimits::default().concurrent(1)));
    for key in ["a", "b", "c"] {
        assert_ne!(send(&app, by("ann", key)).await.code(), 429);
    }
    world.probe.fail_as("begin", StoreErrorKind::Unavailable);
    for _ in 0..2 {
        assert_problem(&send(&app, by("ann", "d")).await, 503, "store-unavailable");
    }
}

#[tokio::test(start_paused = true)]
async fn h47_a_waiting_duplicate_that_takes_over_counts_in_its_place() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let lapsing = policy(OnLapsed::Rerun).lease(10 * SECOND).build().unwrap();
    let rule = || Rule::default().with_policy(lapsing);
    let limits = CallerLimits::default().concurrent(1);
    let app = world.app_with(&upstream, rule().caller_limits(limits));
    let second = world.second();
    let elsewhere = second.app_with(&upstream, rule());
    // Runs in another process, which loses its store, so that the lease lapses.
    let lost = spawn(&elsewhere, by("ann", "a"));
    upstream.called(1).await;
    second.probe.fail_as("renew", StoreErrorKind::Unavailable);
    second.probe.fail_as("complete", StoreErrorKind::Unavailable);
    let mut patient = by("ann", "a");
    patient.headers_mut().insert("prefer", "wait=30".parse().unwrap());
    let waiting = spawn(&app, patient);
    upstream.called(2).await;
    assert_limited(&send(&app, by("ann", "b")).await, "concurrent");
    go.notify_one();
    go.notify_one();
    pass(SECOND).await;
    assert_eq!(waiting.await.unwrap().code(), 201);
    lost.abort();
}

/// A service whose answers have 1,000 bytes.
fn wordy() -> Upstream {
    Upstream::answering(|| {
        let response = Response::builder().status(404);
        response.body(Body::from("x".repeat(1000))).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn h47_stored_bytes_are_limited_for_as_long_as_they_are_stored() {
    let (world, upstream) = (World::new(), wordy());
    let stored = policy(OnLapsed::Hold).retention(8 * HOUR).build().unwrap();
    let limits = CallerLimits::default().stored_bytes(10_000);
    let app = world.app_with(&upstream, limited(limits).with_policy(stored));
    let mut count = 0;
    let refused = loop {
        let reply = send(&app, payment(&count.to_string())).await;
        if reply.code() != 404 {
            break reply;
        }
        count += 1;
        assert!(count < 100, "nothing is limited");
    };
    assert_limited(&refused, "stored_bytes");
    assert_eq!(count, 7, "each takes 1,512 bytes");
    assert_eq!(world.states().await.len(), 7, "nothing is stored of what is refused");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((8 * 3600..=9 * 3600).contains(&wait), "{wait}");
    assert!(send(&app, payment("0")).await.is_replay());
    assert_eq!(send(&app, by("bob", "0")).await.code(), 404, "others go on");
    pass(Duration::from_secs(wait)).await;
    assert_eq!(send(&app, payment("new")).await.code(), 404);
}

#[tokio::test(start_paused = true)]
async fn h47_what_stores_nothing_takes_no_bytes() {
    let (world, upstream) =
        (World::new(), Upstream::answering(|| crate::support::upstream::status(429)));
    let app = world.app_with(&upstream, limited(CallerLimits::default().stored_bytes(1)));
    for key in ["a", "b", "c"] {
        let reply = send(&app, by("ann", key)).await;
        assert_eq!((reply.code(), reply.text()), (429, "429"), "that of the service");
    }
    assert_eq!(world.state().await, StateName::Absent);
}

#[tokio::test(start_paused = true)]
async fn h47_a_request_without_a_key_is_no_way_around() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, limited(rate(2, HOUR).stored_bytes(1)));
    let bare = || request("POST", "/payments", &[("authorization", "ann")], "{}");
    for _ in 0..2 {
        assert_eq!(send(&app, bare()).await.header("idempotency-status"), Some("unprotected"));
    }
    assert_limited(&send(&app, bare()).await, "rate");
    assert_limited(&send(&app, by("ann", "a")).await, "rate");
    assert_eq!(send(&app, request("GET", "/a", &[("authorization", "ann")], "")).await.code(), 201);

    let (upstream, go) = Upstream::waiting();
    let app = world.app_with(&upstream, limited(CallerLimits::default().concurrent(1)));
    let running = spawn(&app, bare());
    upstream.called(1).await;
    assert_limited(&send(&app, bare()).await, "concurrent");
    go.notify_one();
    assert_eq!(running.await.unwrap().code(), 201);
}

#[tokio::test(start_paused = true)]
async fn h47_what_passes_while_the_store_is_away_is_limited() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = limited(rate(2, HOUR)).when_store_down(WhenStoreDown::Pass);
    let app = world.app_with(&upstream, rule);
    world.probe.fail_as("begin", StoreErrorKind::Unavailable);
    for key in ["a", "b"] {
        let reply = send(&app, by("ann", key)).await;
        assert_eq!(reply.header("idempotency-status"), Some("unprotected"), "{reply:?}");
    }
    assert_limited(&send(&app, by("ann", "c")).await, "rate");
    assert_eq!(upstream.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn h47_who_is_not_identified_is_known_by_the_address() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, limited(rate(1, HOUR)));
    let from = |address: &str, key: &str| {
        let mut request = payment(key);
        let address: IpAddr = address.parse().unwrap();
        request.extensions_mut().insert(ClientAddress(address));
        request
    };
    assert_eq!(send(&app, from("192.0.2.1", "a")).await.code(), 201);
    assert_limited(&send(&app, from("192.0.2.1", "b")).await, "rate");
    assert_eq!(send(&app, from("192.0.2.2", "b")).await.code(), 201);
    assert_eq!(send(&app, from("2001:db8::1", "c")).await.code(), 201);
    assert_limited(&send(&app, from("2001:db8::2", "d")).await, "rate");
    // A caller that is identified has its own limit, wherever it is.
    let known = |key| {
        let mut request = by("ann", key);
        request.extensions_mut().insert(ClientAddress("192.0.2.1".parse().unwrap()));
        request
    };
    assert_eq!(send(&app, known("d")).await.code(), 201);
    assert_limited(&send(&app, known("e")).await, "rate");
    // Cookies that nobody checks tell callers apart for replays, not for limits.
    let mut disguised = from("192.0.2.1", "f");
    disguised.headers_mut().insert("cookie", "a=b".parse().unwrap());
    assert_limited(&send(&app, disguised).await, "rate");
}

#[tokio::test(start_paused = true)]
async fn h47_a_caller_is_one_whatever_else_its_requests_say() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "POST,PATCH /*", limited(rate(1, HOUR)));
    assert_eq!(send(&app, by("ann", "a")).await.code(), 201);
    for (method, path, more) in [
        ("PATCH", "/payments", ("accept", "a")),
        ("POST", "/payments/2", ("accept", "a")),
        ("POST", "/payments", ("x-api-key", "other")),
        ("POST", "/payments", ("cookie", "a=b")),
        ("POST", "/payments", ("host", "other")),
    ] {
        let headers = [("authorization", "ann"), ("idempotency-key", "b"), more];
        assert_limited(&send(&app, request(method, path, &headers, "{}")).await, "rate");
    }
    // The tenant is the caller where nothing else is asked for.
    let scope = vec![ScopePart::Tenant("x-tenant".parse().unwrap())];
    let app = world.app_with(&upstream, limited(rate(1, HOUR)).scope(scope));
    let of = |tenant: &str, key: &str| {
        let headers = [("x-tenant", tenant), ("idempotency-key", key)];
        request("POST", "/a", &headers, "{}")
    };
    assert_eq!(send(&app, of("a", "1")).await.code(), 201);
    assert_limited(&send(&app, of("a", "2")).await, "rate");
    assert_eq!(send(&app, of("b", "2")).await.code(), 201);
    // Where the caller is asked for, one without a credential cannot help itself with a tenant.
    let scope = vec![ScopePart::Caller, ScopePart::Tenant("x-tenant".parse().unwrap())];
    let app = world.app_at(&upstream, "POST /a", limited(rate(1, HOUR)).scope(scope));
    assert_eq!(send(&app, of("c", "3")).await.code(), 201);
    assert_limited(&send(&app, of("d", "4")).await, "rate");
}

#[tokio::test(start_paused = true)]
async fn h47_layers_may_share_what_callers_have_used() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let usage = CallerUsage::with_capacity(100);
    let app = || -> App {
        let layer = world.layer().caller_usage(usage.clone());
        layer.default_rule(limited(rate(1, HOUR))).build().layer(upstream.clone())
    };
    assert_eq!(send(&app(), by("ann", "a")).await.code(), 201);
    assert_limited(&send(&app(), by("ann", "b")).await, "rate");
}

#[tokio::test(start_paused = true)]
async fn h47_refusals_are_counted_by_limit_and_pages_can_read_them() {
    let counters = Counters::default();
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = limited(rate(1, HOUR)).cors(Cors::any());
    let app = metrics::with_local_recorder(&counters, || world.app_with(&upstream, rule));
    send(&app, by("ann", "a")).await;
    for key in ["b", "c"] {
        let mut refused = by("ann", key);
        refused.headers_mut().insert("origin", "https://shop.example.com".parse().unwrap());
        let reply = send(&app, refused).await;
        assert_limited(&reply, "rate");
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    }
    send(&app, by("ann", "a")).await;
    assert_eq!(counters.of("idempotency_limited_total default rate"), 2);
    assert_eq!(counters.of("idempotency_limited_total default concurrent"), 0);
    assert_eq!(counters.of("idempotency_requests_total default limited false"), 2);
    assert_eq!(counters.of("idempotency_requests_total default executed false"), 1);
}

/// A caller has used up what it may store. Then it sends a request without a key, and others come.
#[tokio::test(start_paused = true)]
async fn h47_a_request_without_a_key_does_not_make_its_caller_forgotten() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let layer = world.layer().caller_usage(CallerUsage::with_capacity(16));
    let limits = CallerLimits::default().stored_bytes(1).concurrent(1000);
    let app = layer.default_rule(limited(limits)).build().layer(upstream.clone());
    assert_eq!(send(&app, by("ann", "a")).await.code(), 201);
    assert_limited(&send(&app, by("ann", "b")).await, "stored_bytes");
    let unprotected = request("POST", "/payments", &[("authorization", "ann")], "{}");
    assert_eq!(send(&app, unprotected).await.code(), 201);
    for stranger in 0..40 {
        // They use less of their limits than she has.
        let name = format!("stranger {stranger}");
        let unprotected = request("POST", "/payments", &[("authorization", &name)], "{}");
        assert_eq!(send(&app, unprotected).await.code(), 201);
    }
    assert_limited(&send(&app, by("ann", "b")).await, "stored_bytes");
}
