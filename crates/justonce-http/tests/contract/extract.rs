//! What handlers learn about their operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::routing::post;
use http::{Response, StatusCode};
use justonce_core::OnLapsed;
use justonce_core::store::Fault;
use justonce_http::Idempotent;
use tower::ServiceExt;

use crate::support::reply::Reply;
use crate::support::upstream::Upstream;
use crate::support::world::{SECOND, World, pass, payment, request, rule, spawn};

async fn ask(app: &Router, request: http::Request<axum::body::Body>) -> Reply {
    Reply::of(app.clone().oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn h25_handlers_learn_key_attempt_and_fence() {
    let world = World::new();
    let handler = async |operation: Idempotent| {
        let (key, attempt) = (operation.key().as_str(), operation.attempt());
        format!("{key} {attempt} {}", operation.fence().get())
    };
    let layer = world.layer().build();
    let app = Router::new().route("/payments", post(handler)).layer(layer);
    assert_eq!(ask(&app, payment("\"abc\"")).await.text(), "abc 1 1");
    assert_eq!(ask(&app, payment("def")).await.text(), "def 1 2");
}

#[tokio::test]
async fn h25_a_step_has_the_same_key_on_every_attempt() {
    let world = World::new();
    let attempts = Arc::new(AtomicU32::new(0));
    let count = attempts.clone();
    let handler = async move |operation: Idempotent| {
        assert_eq!(operation.attempt(), count.fetch_add(1, Ordering::SeqCst) + 1);
        let code = if operation.attempt() == 1 { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
        (code, operation.child_key("bank").as_str().to_owned())
    };
    let layer = world.layer().default_rule(rule(OnLapsed::Rerun)).build();
    let app = Router::new().route("/payments", post(handler)).layer(layer);
    let first = ask(&app, payment("abc")).await;
    let second = ask(&app, payment("abc")).await;
    assert_eq!((first.code(), second.code()), (502, 200));
    assert_eq!(first.text(), second.text());
}

#[tokio::test]
async fn h07_handlers_of_unprotected_requests_know_it() {
    let world = World::new();
    let demanding = async |_: Idempotent| "protected";
    let modest = async |operation: Option<Idempotent>| operation.is_some().to_string();
    let router = Router::new().route("/demanding", post(demanding)).route("/modest", post(modest));
    let app = router.layer(world.layer().build());
    let refused = ask(&app, request("POST", "/demanding", &[], "")).await;
    assert_eq!(refused.code(), 400);
    assert_eq!(ask(&app, request("POST", "/modest", &[], "")).await.text(), "false");
    let key = [("idempotency-key", "abc")];
    assert_eq!(ask(&app, request("POST", "/modest", &key, "")).await.text(), "true");
    let other = [("idempotency-key", "def")];
    assert_eq!(ask(&app, request("POST", "/demanding", &other, "")).await.text(), "protected");
}

#[tokio::test(start_paused = true)]
async fn h24_a_takeover_under_resume_goes_on_from_the_last_checkpoint() {
    let (world, second) = {
        let world = World::new();
        let second = world.second();
        (world, second)
    };
    let stuck = Upstream::new(|heard| async move {
        let operation = heard.operation.unwrap();
        assert!(operation.checkpoint().is_none());
        operation.save("reserved", "seat 12").await.unwrap();
        operation.save("charged", "charge 7").await.unwrap();
        std::future::pending().await
    });
    let app = world.app_with(&stuck, rule(OnLapsed::Resume));
    world.probe.fail("renew", Fault::NotApplied);
    let first = spawn(&app, payment("abc"));
    pass(31 * SECOND).await;

    let resumed = Upstream::new(|heard| async move {
        let operation = heard.operation.unwrap();
        let point = operation.checkpoint().unwrap();
        let data = String::from_utf8(point.data().to_vec()).unwrap();
        let text = format!("{} {} {data}", operation.attempt(), point.name());
        Response::new(text.into())
    });
    let winner = spawn(&second.app_with(&resumed, rule(OnLapsed::Resume)), payment("abc"));
    assert_eq!(winner.await.unwrap().text(), "2 charged charge 7");
    // The old owner learns that it is one, and its caller gets the winner's outcome.
    world.probe.heal();
    let first = first.await.unwrap();
    assert_eq!((first.text(), first.is_replay()), ("2 charged charge 7", true));
}
