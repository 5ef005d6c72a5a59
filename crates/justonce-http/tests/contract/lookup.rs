//! Asking what became of a key: h37.

use justonce_core::{AfterRetention, OnLapsed, StoreErrorKind};
use justonce_http::{Rule, ScopePart};
use serde_json::json;

use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::{Upstream, status};
use crate::support::world::{App, HOUR, World, pass, payment, policy, request, rule, send, spawn};

async fn ask(app: &App, path: &str) -> Reply {
    send(app, request("GET", path, &[], "")).await
}

async fn state(app: &App) -> String {
    let reply = ask(app, "/.well-known/idempotency/abc?path=/payments").await;
    assert_eq!(reply.code(), 200, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    reply.json()["state"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn h37_absent_in_progress_and_completed() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app(&upstream);
    assert_eq!(state(&app).await, "absent");
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    assert_eq!(state(&app).await, "in_progress");
    go.notify_one();
    first.await.unwrap();
    let reply = ask(&app, "/.well-known/idempotency/abc?path=/payments&method=POST").await;
    assert_eq!(reply.json(), json!({ "state": "completed", "status": 201 }), "and no body");
    assert_eq!(upstream.calls(), 1, "nothing is executed");
    assert_eq!(world.states().await.len(), 1, "and nothing claimed");
}

#[tokio::test]
async fn h37_unknown_and_failed() {
    let (world, upstream) = (World::new(), Upstream::answering(|| status(500)));
    let app = world.app(&upstream);
    send(&app, payment("abc")).await;
    assert_eq!(state(&app).await, "unknown");

    use justonce_core::{Outcome, Resolution, Resolve, Resolver, Why};
    let record = world.record().await;
    let id = justonce_core::RecordId::of(&record.subject.scope, &record.subject.key);
    let resolution = Resolution::Fail(Outcome::bytes("secret"));
    let resolve = Resolve { resolution, by: Resolver::operator("ann"), why: Why::new("asked") };
    let _ = world.engine.resolve(id, record.fence, resolve).await.unwrap();
    assert_eq!(state(&app).await, "failed");
    let reply = ask(&app, "/.well-known/idempotency/abc?path=/payments").await;
    assert!(!reply.text().contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn h37_absent_or_expired_after_the_retention() {
    for (after, name) in
        [(AfterRetention::New, "absent"), (AfterRetention::Refuse(24 * HOUR), "expired")]
    {
        let (world, upstream) = (World::new(), Upstream::counting());
        let policy = policy(OnLapsed::Hold).retention(HOUR).after_retention(after);
        let rule = Rule::default().with_policy(policy.build().unwrap());
        let app = world.app_with(&upstream, rule);
        send(&app, payment("abc")).await;
        pass(HOUR).await;
        assert_eq!(state(&app).await, name);
    }
}

#[tokio::test(start_paused = true)]
async fn h37_an_attempt_that_lapsed_is_in_progress_until_somebody_takes_over() {
    let (world, (upstream, _go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, rule(OnLapsed::Rerun));
    world.probe.fail_as("renew", StoreErrorKind::Unavailable);
    let first = spawn(&app, payment("abc"));
    upstream.called(1).await;
    pass(HOUR / 60).await;
    assert_eq!(state(&app).await, "in_progress");
    first.abort();
}

#[tokio::test]
async fn h37_only_the_same_credentials_see_it() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let scope = vec![ScopePart::Principal(http::header::AUTHORIZATION)];
    let app = world.app_with(&upstream, Rule::default().scope(scope));
    let own = [("authorization", "Bearer a"), ("idempotency-key", "abc")];
    send(&app, request("POST", "/payments", &own, "{}")).await;
    let path = "/.well-known/idempotency/abc?path=/payments";
    for (credentials, expected) in [
        (&[("authorization", "Bearer a")][..], "completed"),
        (&[("authorization", "Bearer b")], "absent"),
        (&[], "absent"),
    ] {
        let reply = send(&app, request("GET", path, credentials, "")).await;
        assert_eq!(reply.json()["state"], expected, "{credentials:?}");
    }
}

#[tokio::test]
async fn h37_path_and_method_decide_the_route() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "PUT /shops/{shop}", Rule::default());
    send(&app, request("PUT", "/shops/1", &[("idempotency-key", "a/b")], "{}")).await;
    let base = "/.well-known/idempotency/a%2Fb";
    for (query, expected) in [
        ("?path=/shops/1&method=PUT", "completed"),
        ("?method=PUT&path=%2Fshops%2F1%3Fx%3D1", "completed"),
        ("?path=/shops/1", "absent"),
        ("?path=/other&method=PUT", "absent"),
    ] {
        let reply = ask(&app, &format!("{base}{query}")).await;
        assert_eq!(reply.json()["state"], expected, "{query}");
    }
}

#[tokio::test]
async fn h37_questions_that_cannot_be_read_are_problems() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let base = "/.well-known/idempotency/";
    for wrong in ["abc", "abc?path=/a&method=%20", "%09?path=/a", "?path=/a"] {
        assert_problem(&ask(&app, &format!("{base}{wrong}")).await, 400, "key-invalid");
    }
    let long = "x".repeat(256);
    let reply = ask(&app, &format!("{base}{long}?path=/a")).await;
    assert_problem(&reply, 400, "key-invalid");
    assert!(!reply.text().contains("xxx"), "the key is not shown");
    world.probe.fail_as("peek", StoreErrorKind::Unavailable);
    let reply = ask(&app, &format!("{base}abc?path=/payments")).await;
    assert_problem(&reply, 503, "store-unavailable");
    assert_eq!(upstream.calls(), 0);
}
