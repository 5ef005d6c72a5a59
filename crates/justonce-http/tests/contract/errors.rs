//! Errors of ours: h33, h36, h38 and h39.

use std::collections::HashSet;
use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use justonce_core::{AfterRetention, Entropy, Key, OnLapsed, StateName, Timestamp, UnknownReason};
use justonce_http::{KeyPresence, ProblemCode, RequestBody, Rule};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::{Upstream, created};
use crate::support::world::{HOUR, SECOND, START, World, pass, payment, policy, request, send};

/// A problem as every one of ours must be.
#[track_caller]
fn assert_complete(reply: &Reply) {
    let body = reply.json();
    let text = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("{name}: {body}"));
    let code = ProblemCode::ALL.iter().find(|code| code.as_str() == text("code")).unwrap();
    assert_eq!(text("type"), format!("/.well-known/idempotency/errors/{}", code.as_str()));
    assert_eq!(text("title"), code.title());
    assert_eq!(body["status"], reply.code());
    assert_eq!(body["retryable"], code.is_retryable());
    assert!(text("detail").len() > 20 && text("detail").ends_with('.'), "{body}");
    let instance = text("instance").strip_prefix("urn:uuid:").unwrap();
    assert_eq!(uuid::Uuid::parse_str(instance).unwrap().get_version_num(), 4);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn h33_problems_are_complete_and_each_has_a_name_of_its_own() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_presence(KeyPresence::Required));
    let mut instances = HashSet::new();
    send(&app, payment("abc")).await;
    let mut other = payment("abc");
    *other.body_mut() = Body::from("other");
    for (request, code) in [
        (request("POST", "/", &[], ""), "key-missing"),
        (payment("a,b"), "key-invalid"),
        (payment("a,b"), "key-invalid"),
        (other, "key-mismatch"),
    ] {
        let reply = send(&app, request).await;
        assert_eq!(reply.problem().as_deref(), Some(code));
        assert_complete(&reply);
        assert!(instances.insert(reply.json()["instance"].clone()));
    }
}

#[tokio::test]
async fn h33_the_codes_of_the_contract_exist() {
    let codes: Vec<_> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
    for code in [
        "key-missing",
        "key-invalid",
        "key-mismatch",
        "in-flight",
        "outcome-unknown",
        "superseded",
        "key-expired",
        "body-too-large",
        "outcome-too-large",
        "store-unavailable",
        "upstream-unreachable",
        "upstream-failed",
    ] {
        assert!(codes.contains(&code), "{code}");
    }
}

#[tokio::test]
async fn h33_the_type_is_a_page_that_is_served() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for code in ProblemCode::ALL {
        let path = format!("/.well-known/idempotency/errors/{}", code.as_str());
        let page = send(&app, request("GET", &path, &[], "")).await;
        assert_eq!(page.code(), 200);
        assert_eq!(page.header("content-type"), Some("text/markdown; charset=utf-8"));
        assert!(page.text().starts_with(&format!("# {}\n", code.as_str())), "{path}");
    }
    let none = send(&app, request("GET", "/.well-known/idempotency/errors/none", &[], "")).await;
    assert_eq!((none.code(), upstream.calls()), (404, 0));

    let layer = world.layer().problems_base("https://api.example.com/").build();
    let reply = send(&layer.layer(upstream), payment("a,b")).await;
    let page = "https://api.example.com/.well-known/idempotency/errors/key-invalid";
    assert_eq!(reply.json()["type"], page);
    assert_eq!(reply.header("link"), Some(&*format!("<{page}>; rel=\"describedby\"")));
}

fn after(rule: AfterRetention) -> Rule {
    let policy = policy(OnLapsed::Hold).retention(HOUR).after_retention(rule);
    Rule::default().with_policy(policy.build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn h36_after_the_retention_a_key_is_new() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, after(AfterRetention::New));
    send(&app, payment("abc")).await;
    pass(HOUR - SECOND).await;
    assert!(send(&app, payment("abc")).await.is_replay());
    pass(SECOND).await;
    let reply = send(&app, payment("abc")).await;
    assert_eq!((reply.text(), reply.is_replay()), ("payment 2", false));
}

#[tokio::test(start_paused = true)]
async fn h36_or_it_is_refused_as_expired() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, after(AfterRetention::Refuse(24 * HOUR)));
    send(&app, payment("abc")).await;
    for swept in [false, true] {
        pass(HOUR).await;
        let reply = send(&app, payment("abc")).await;
        assert_problem(&reply, 409, "key-expired");
        assert_complete(&reply);
        assert_eq!(world.engine.sweep(10).await.unwrap().buried, u64::from(!swept));
    }
    // Whatever it asks now: nothing is compared with a tombstone.
    let mut other = payment("abc");
    *other.body_mut() = Body::from("other");
    assert_problem(&send(&app, other).await, 409, "key-expired");
    pass(24 * HOUR).await;
    assert_eq!(send(&app, payment("abc")).await.text(), "payment 2", "tombstones end too");
}

#[tokio::test(start_paused = true)]
async fn h36_a_uuid_7_that_is_older_than_the_retention_is_refused() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, after(AfterRetention::Refuse(24 * HOUR)));
    let entropy = Entropy::seeded(7);
    let at = |millis: u64| Key::issued(Timestamp::from_millis(millis), &entropy);
    let old = at(START.as_millis() - 3_600_001);
    assert_problem(&send(&app, payment(old.as_str())).await, 409, "key-expired");
    assert_eq!((upstream.calls(), world.state().await), (0, StateName::Absent));
    let young = at(START.as_millis() - 3_599_000);
    assert_eq!(send(&app, payment(young.as_str())).await.code(), 201);
    // Where late arrivals are new operations, its age does not count.
    let app = world.app_at(&upstream, "POST /payments", after(AfterRetention::New));
    assert_eq!(send(&app, payment(old.as_str())).await.code(), 201);
}

#[tokio::test]
async fn h38_a_panic_is_500_and_the_operation_unknown() {
    let world = World::new();
    let upstream = Upstream::new(|heard| {
        // Some panic when they are called, others while they work.
        assert_ne!(heard.number, 1, "at once");
        async move {
            tokio::task::yield_now().await;
            assert_ne!(heard.number, 2, "later");
            created(heard.number)
        }
    });
    let app = world.app(&upstream);
    for (number, key) in ["at-once", "later"].iter().enumerate() {
        let reply = send(&app, payment(key)).await;
        assert_problem(&reply, 500, "upstream-failed");
        assert_complete(&reply);
        assert_problem(&send(&app, payment(key)).await, 409, "outcome-unknown");
        assert_eq!(upstream.calls(), number + 1);
    }
    assert_eq!(send(&app, payment("next")).await.code(), 201, "the process lives");
    assert_eq!(world.engine.load().executing, 0, "and no place is lost");
}

#[tokio::test]
async fn h38_a_panic_in_the_middle_of_a_stream_breaks_the_answer_off() {
    let world = World::new();
    let upstream = Upstream::answering(|| Response::new(Body::new(Bomb(1))));
    let app = world.app(&upstream);
    let answer = crate::support::world::call(&app, payment("abc")).await;
    assert!(http_body_util::BodyExt::collect(answer.into_body()).await.is_err());
    world.probe.ended("abandon", 1).await;
    let justonce_core::State::Unknown(unknown) = world.record().await.state else {
        panic!("it is unknown");
    };
    assert_eq!(unknown.reason, UnknownReason::Panicked);
}

/// A body that panics after its first piece, the next of which takes some turns.
struct Bomb(u32);

impl http_body::Body for Bomb {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
        use std::task::Poll;
        let left = self.0;
        self.0 += 1;
        cx.waker().wake_by_ref();
        match left {
            1 => Poll::Ready(Some(Ok(http_body::Frame::data("one".into())))),
            2..=9 => Poll::Pending,
            _ => panic!("in the middle"),
        }
    }
}

#[tokio::test]
async fn h38_an_error_of_the_service_reaches_its_caller_and_the_operation_is_unknown() {
    let world = World::new();
    let service = service_fn(|_: Request<RequestBody<Body>>| {
        std::future::ready(Err::<Response<Body>, _>("the pool is closed"))
    });
    let app = world.layer().build().layer(service);
    let error = app.clone().oneshot(payment("abc")).await.unwrap_err();
    assert_eq!(error, "the pool is closed");
    assert_eq!(world.state().await, StateName::Unknown);
    let retry = Reply::of(app.oneshot(payment("abc")).await.unwrap()).await;
    assert_problem(&retry, 409, "outcome-unknown");
}

#[tokio::test]
async fn h38_odd_requests_are_answered() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let key = [("idempotency-key", "abc")];
    for path in ["*", "/%ff%00", "//", "/?%zz=%", "/.well-known/idempotency/?path=%ff"] {
        for method in ["POST", "GET", "M-SEARCH"] {
            let reply = send(&app, request(method, path, &key, "\0")).await;
            assert!(reply.code() < 500, "{method} {path}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn h39_the_retention_is_advertised_on_all_answers_of_protected_routes() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let protected =
        [payment("abc"), payment("abc"), payment("a,b"), request("POST", "/payments", &[], "")];
    for request in protected {
        let reply = send(&app, request).await;
        assert_eq!(reply.header("idempotency-key-lifetime"), Some("86400"), "{reply:?}");
    }
    for method in ["GET", "PUT"] {
        let reply = send(&app, request(method, "/payments", &[], "")).await;
        assert_eq!(reply.header("idempotency-key-lifetime"), None);
    }
    let app = world.app_with(&upstream, after(AfterRetention::New));
    let reply = send(&app, payment("short")).await;
    assert_eq!(reply.header("idempotency-key-lifetime"), Some("3600"));
}

#[tokio::test]
async fn h39_streamed_answers_advertise_it_too() {
    let world = World::new();
    let upstream = Upstream::answering(|| Response::new(Body::from(vec![7; 100_000])));
    let reply = send(&world.app(&upstream), payment("abc")).await;
    assert_eq!(reply.header("idempotency-key-lifetime"), Some("86400"));
}
