//! Duplicates of a running operation: h15 to h17.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use justonce_core::OnLapsed;
use justonce_core::engine::Limits;
use justonce_http::{Rule, WhenBusy};

use crate::support::reply::{Reply, assert_problem};
use crate::support::socket::{exchange, serve};
use crate::support::upstream::Upstream;
use crate::support::world::{SECOND, World, pass, payment, policy, rule, send, spawn};

fn waiting(time: Duration) -> Rule {
    Rule::default().when_busy(WhenBusy::Wait(time))
}

fn preferring(wish: &str) -> Request<Body> {
    let mut request = payment("abc");
    request.headers_mut().insert("prefer", wish.parse().unwrap());
    request
}

/// Sends this many identical requests at once; half of them wait. Exactly one is executed.
async fn assert_one_of(count: usize) {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let processes = [world.clone(), world.second()];
    let apps = [
        processes[0].app(&upstream),
        processes[1].app(&upstream),
        processes[0].app_with(&upstream, waiting(30 * SECOND)),
        processes[1].app_with(&upstream, waiting(30 * SECOND)),
    ];
    let requests = (0..count).map(|n| spawn(&apps[n % apps.len()], payment("abc")));
    let requests: Vec<_> = requests.collect();
    upstream.called(1).await;
    go.notify_one();
    let mut executed = 0;
    for request in requests {
        let reply = request.await.unwrap();
        match (reply.code(), reply.is_replay()) {
            (201, false) => executed += 1,
            (201, true) => {}
            _ => assert_problem(&reply, 409, "in-flight"),
        }
    }
    assert_eq!((executed, upstream.calls()), (1, 1), "of {count}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h15_of_2_identical_requests_one_reaches_the_service() {
    assert_one_of(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h15_of_50_identical_requests_one_reaches_the_service() {
    assert_one_of(50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h15_of_1000_identical_requests_one_reaches_the_service() {
    assert_one_of(1000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h15_over_sockets_one_reaches_the_service() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let address = serve(world.router(&upstream, waiting(30 * SECOND))).await;
    let request = "POST /payments HTTP/1.1\r\nHost: a\r\nIdempotency-Key: abc\r\n\
                   Connection: close\r\nContent-Length: 2\r\n\r\n{}";
    let callers = (0..50).map(|_| tokio::spawn(exchange(address, request)));
    let callers: Vec<_> = callers.collect();
    upstream.called(1).await;
    go.notify_one();
    let mut executed = 0;
    for caller in callers {
        let answer = caller.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 201") && answer.ends_with("payment 1"), "{answer}");
        executed += usize::from(!answer.contains("idempotent-replayed: true"));
    }
    assert_eq!((executed, upstream.calls()), (1, 1));
}

/// Starts an operation that goes on until it is told to end, and runs the rest meanwhile.
async fn during(
    rule: Rule,
    duplicate: Request<Body>,
    wait: Duration,
) -> (Option<Reply>, Reply, usize) {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, rule);
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    let duplicate = spawn(&app, duplicate);
    pass(wait).await;
    let early = if duplicate.is_finished() { Some(duplicate.await.unwrap()) } else { None };
    go.notify_one();
    let first = first.await.unwrap();
    assert_eq!(first.text(), "payment 1");
    (early, first, upstream.calls())
}

#[tokio::test(start_paused = true)]
async fn h16_a_duplicate_gets_409_with_the_time_that_the_lease_has_left() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let policy = policy(OnLapsed::Hold).lease(40 * SECOND).build().unwrap();
    let app = world.app_with(&upstream, Rule::default().with_policy(policy));
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    pass(Duration::from_millis(5500)).await;
    let reply = send(&app, payment("abc")).await;
    assert_problem(&reply, 409, "in-flight");
    assert_eq!(reply.header("retry-after"), Some("35"), "34.5 s, rounded up");
    assert_eq!(reply.json()["retryable"], true);
    go.notify_one();
    assert_eq!(first.await.unwrap().code(), 201);
}

#[tokio::test(start_paused = true)]
async fn h16_a_route_may_let_duplicates_wait() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, waiting(10 * SECOND));
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    let duplicate = spawn(&app, payment("abc"));
    pass(9 * SECOND).await;
    assert!(!duplicate.is_finished());
    let before = tokio::time::Instant::now();
    go.notify_one();
    let reply = duplicate.await.unwrap();
    assert_eq!((reply.text(), reply.is_replay()), ("payment 1", true));
    assert!(before.elapsed() < SECOND / 100, "as soon as it is stored: {:?}", before.elapsed());
    assert!(!first.await.unwrap().is_replay());
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn h16_at_the_deadline_a_waiter_gets_409() {
    let (early, _, calls) = during(waiting(10 * SECOND), payment("abc"), 11 * SECOND).await;
    assert_problem(&early.unwrap(), 409, "in-flight");
    assert_eq!(calls, 1);
    let (early, ..) = during(waiting(10 * SECOND), payment("abc"), 9 * SECOND).await;
    assert!(early.is_none());
}

#[tokio::test(start_paused = true)]
async fn h16_a_caller_may_ask_to_wait() {
    let (early, ..) = during(Rule::default(), preferring("wait=10"), 9 * SECOND).await;
    assert!(early.is_none());
    let (early, ..) = during(Rule::default(), preferring("wait=10"), 11 * SECOND).await;
    assert_problem(&early.unwrap(), 409, "in-flight");
    // Or not to, where the route would let it.
    let (early, ..) = during(waiting(10 * SECOND), preferring("wait=0"), SECOND).await;
    assert_problem(&early.unwrap(), 409, "in-flight");
    // What cannot be read is no wish.
    let (early, ..) = during(Rule::default(), preferring("wait=long"), SECOND).await;
    assert_problem(&early.unwrap(), 409, "in-flight");
}

#[tokio::test(start_paused = true)]
async fn h16_a_wish_is_granted_within_the_routes_maximum() {
    let rule = || Rule::default().max_wait(5 * SECOND);
    let (early, ..) = during(rule(), preferring("wait=4000000000"), 4 * SECOND).await;
    assert!(early.is_none());
    let (early, ..) = during(rule(), preferring("wait=4000000000"), 6 * SECOND).await;
    assert_problem(&early.unwrap(), 409, "in-flight");
}

#[tokio::test(start_paused = true)]
async fn h16_waiters_are_bounded() {
    let world = World::with(Limits { max_waiters: 2, ..Limits::default() });
    let (upstream, go) = Upstream::waiting();
    let app = world.app_with(&upstream, waiting(10 * SECOND));
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    let waiters = [spawn(&app, payment("abc")), spawn(&app, payment("abc"))];
    pass(SECOND).await;
    assert_eq!(world.engine.load().waiting, 2);
    assert_problem(&send(&app, payment("abc")).await, 409, "in-flight");
    go.notify_one();
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_replay());
    }
    assert_eq!(first.await.unwrap().code(), 201);
}

#[tokio::test(start_paused = true)]
async fn h16_a_waiter_executes_what_the_first_gave_back() {
    let (world, go) = (World::new(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let wait = go.clone();
    let upstream = Upstream::new(move |heard| {
        let wait = wait.clone();
        async move {
            wait.notified().await;
            let code = if heard.number == 1 { 429 } else { 201 };
            crate::support::upstream::status(code)
        }
    });
    let app = world.app_with(&upstream, waiting(10 * SECOND));
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    let second = spawn(&app, payment("abc"));
    world.probe.arrived("settled").await;
    go.notify_one();
    assert_eq!(first.await.unwrap().code(), 429);
    upstream.called(2).await;
    go.notify_one();
    let second = second.await.unwrap();
    assert_eq!((second.code(), second.is_replay()), (201, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h17_a_duplicate_of_a_completed_operation_replays() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule(OnLapsed::Hold));
    assert_eq!(send(&app, payment("abc")).await.code(), 201);
    let duplicates = (0..100).map(|_| spawn(&app, payment("abc")));
    let duplicates: Vec<_> = duplicates.collect();
    for duplicate in duplicates {
        let reply = duplicate.await.unwrap();
        assert_eq!((reply.code(), reply.is_replay()), (201, true), "never 409");
    }
    assert_eq!(upstream.calls(), 1);
}
