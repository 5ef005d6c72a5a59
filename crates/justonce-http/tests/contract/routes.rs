//! Rules that miss: a layer around a nested router, and a layer on a single route.

use axum::Router;
use axum::body::Body;
use axum::routing::{any, get_service, post};
use http::{Request, StatusCode};
use justonce_core::OnLapsed;
use justonce_http::{Idempotency, KeyPresence, Pattern, Rule};
use tower::{Layer, ServiceExt};

use crate::logs_and_metrics::{Counters, Log};
use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::Upstream;
use crate::support::world::{World, request, rule, send};

fn required() -> Rule {
    rule(OnLapsed::Hold).key_presence(KeyPresence::Required)
}

async fn ask(app: &Router, request: Request<Body>) -> Reply {
    Reply::of(app.clone().oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn a_rule_that_never_matched_while_similar_paths_passed_is_warned_about_once() {
    let (log, counters) = (Log::default(), Counters::default());
    let writer = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
    let _logging = tracing::subscriber::set_default(writer.finish());
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = metrics::with_local_recorder(&counters, || {
        let at = |pattern: &str| Pattern::parse(pattern).unwrap();
        let layer = world.layer().route("payments", at("POST /payments"), required());
        let layer = layer.route("refunds", at("POST /api/refunds/{id}"), required());
        layer.route("orders", at("POST /orders"), required()).build().layer(upstream.clone())
    });
    let near = |route: &str| counters.of(&format!("idempotency_near_misses_total {route}"));
    send(&app, request("POST", "/orders", &[("idempotency-key", "abc")], "")).await;
    for path in ["/api/payments", "/api/payments/", "/refunds/7", "/api/orders", "/other"] {
        assert_eq!(send(&app, request("POST", path, &[], "")).await.code(), 201);
    }
    send(&app, request("PUT", "/api/payments", &[], "")).await;
    assert_eq!((near("payments"), near("refunds"), near("orders")), (2, 1, 0));
    let log = log.text();
    assert_eq!(log.matches("no request has matched this route").count(), 2, "{log}");
    assert!(
        log.contains("route=\"payments\" pattern=POST /payments path=\"/api/payments\""),
        "{log}"
    );

    // Once it has matched, others with such a path are no mistake.
    send(&app, request("POST", "/payments", &[("idempotency-key", "abc")], "")).await;
    send(&app, request("POST", "/api/payments", &[], "")).await;
    assert_eq!(near("payments"), 2);
}

#[tokio::test]
async fn a_slash_at_the_end_of_a_route_or_a_pattern_misses_nothing() {
    let (world, upstream) = (World::new(), Upstream::counting());
    for (pattern, path) in [("POST /payments", "/payments/"), ("POST /payments/", "/payments")] {
        let layer = world.layer().route("a", Pattern::parse(pattern).unwrap(), required()).build();
        let app = Router::new().route(path, any(get_service(upstream.clone()))).layer(layer);
        assert_problem(&ask(&app, request("POST", path, &[], "")).await, 400, "key-missing");
    }
}

#[tokio::test]
async fn a_layer_on_a_single_route_protects_it_wherever_the_router_is_nested() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let once = Idempotency::for_route(world.engine.clone(), "payments", required());
    let service = upstream.clone();
    let pay = async move |request: Request<Body>| service.clone().oneshot(request).await.unwrap();
    let route = post(pay.clone()).put(pay.clone()).delete(pay.clone()).patch(pay.clone());
    let api = Router::new()
        .route("/payments/", route.get(pay.clone()).layer(once))
        .route("/open", post(pay));
    let app = Router::new().nest("/api/v1", api);
    for (number, method) in ["POST", "PUT", "DELETE", "PATCH"].into_iter().enumerate() {
        let bare = ask(&app, request(method, "/api/v1/payments/", &[], "")).await;
        assert_problem(&bare, 400, "key-missing");
        for _ in 0..2 {
            let keyed = request(method, "/api/v1/payments/", &[("idempotency-key", "abc")], "");
            let reply = ask(&app, keyed).await;
            assert_eq!(reply.text(), format!("payment {}", number + 1), "{method}");
        }
    }
    let get = ask(&app, request("GET", "/api/v1/payments/", &[], "")).await;
    assert_eq!((get.status, get.text()), (StatusCode::CREATED, "payment 5"));
    // What lies outside the layer is not touched.
    assert_eq!(ask(&app, request("POST", "/api/v1/open", &[], "")).await.text(), "payment 6");
}
