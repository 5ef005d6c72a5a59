//! Web pages of other origins: h56.

use axum::body::Body;
use http::{HeaderMap, Response};
use justonce_http::{Cors, KeyPresence, KeySource, Origin, Preflights, Rule, ScopePart};

use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::{Upstream, created};
use crate::support::world::{App, World, request, send, spawn};

const SHOP: &str = "https://shop.example.com";
const OFFICE: &str = "https://office.example.com";
const STRANGER: &str = "https://stranger.example.com";
/// What browsers show to pages of problems, and of all other responses.
const OF_PROBLEMS: [&str; 6] = [
    "idempotent-replayed",
    "idempotency-status",
    "idempotency-key-lifetime",
    "retry-after",
    "link",
    "location",
];

fn named() -> Cors {
    Cors::origins([SHOP, OFFICE].map(|origin| Origin::parse(origin).unwrap()))
}

fn rule(cors: Cors) -> Rule {
    Rule::default().key_presence(KeyPresence::Required).cors(cors)
}

/// A payment that a page of this origin sends.
async fn pay_from(app: &App, origin: &str, key: &str, body: &str) -> Reply {
    send(app, from(origin, key, body)).await
}

fn from(origin: &str, key: &str, body: &str) -> http::Request<Body> {
    let headers = [("origin", origin), ("idempotency-key", key)];
    request("POST", "/payments", &headers, body.to_owned())
}

/// All words of a list.
fn words(headers: &HeaderMap, name: &str) -> Vec<String> {
    let lines = headers.get_all(name).into_iter();
    let words = lines.flat_map(|line| line.to_str().unwrap().split(','));
    words.map(|word| word.trim().to_ascii_lowercase()).collect()
}

/// A page of this origin may read the response.
#[track_caller]
fn assert_readable(reply: &Reply, origin: &str) {
    assert_eq!(reply.header("access-control-allow-origin"), Some(origin), "{reply:?}");
    let exposed = words(&reply.headers, "access-control-expose-headers");
    for name in &OF_PROBLEMS[..4] {
        assert_eq!(exposed.iter().filter(|word| word == name).count(), 1, "{name}: {reply:?}");
    }
    if reply.problem().is_some() {
        assert!(OF_PROBLEMS.iter().all(|name| exposed.iter().any(|word| word == name)));
    }
}

/// No page may read the response.
#[track_caller]
fn assert_unreadable(reply: &Reply) {
    for name in ["origin", "credentials", "methods", "headers"] {
        assert_eq!(reply.header(&format!("access-control-allow-{name}")), None, "{reply:?}");
    }
    assert_eq!(reply.header("access-control-expose-headers"), None);
}

#[tokio::test]
async fn h56_problems_can_be_read_by_the_pages_that_may() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, rule(named()));
    let running = spawn(&app, from(SHOP, "abc", "{}"));
    upstream.called(1).await;
    for (key, body, status, code) in [
        ("abc", "{}", 409, "in-flight"),
        ("abc", r#"{"a":1}"#, 422, "key-mismatch"),
        ("a,b", "{}", 400, "key-invalid"),
    ] {
        for origin in [SHOP, OFFICE] {
            let reply = pay_from(&app, origin, key, body).await;
            assert_problem(&reply, status, code);
            assert_readable(&reply, origin);
            assert_eq!(words(&reply.headers, "vary"), ["origin"]);
            assert_eq!(reply.header("access-control-allow-credentials"), None);
        }
        let reply = pay_from(&app, STRANGER, key, body).await;
        assert_problem(&reply, status, code);
        assert_unreadable(&reply);
        assert_eq!(words(&reply.headers, "vary"), ["origin"], "a cache must not mix them up");
    }
    let without = send(&app, request("POST", "/payments", &[("origin", SHOP)], "{}")).await;
    assert_problem(&without, 400, "key-missing");
    assert_readable(&without, SHOP);
    let odd = request("POST", "/a%2fb", &[("origin", SHOP), ("idempotency-key", "k")], "{}");
    let odd = send(&app, odd).await;
    assert_problem(&odd, 400, "request-invalid");
    assert_readable(&odd, SHOP);
    go.notify_one();
    assert_readable(&running.await.unwrap(), SHOP);
}

#[tokio::test]
async fn h56_without_the_setting_nothing_is_added() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for key in ["abc", "abc", "a,b"] {
        let reply = pay_from(&app, SHOP, key, "{}").await;
        assert_unreadable(&reply);
        assert_eq!(reply.header("vary"), None);
    }
}

#[tokio::test]
async fn h56_a_request_of_no_page_gets_no_permission() {
    let (world, upstream) = (World::new(), Upstream::counting());
    for cors in [named(), Cors::any()] {
        let app = world.app_with(&upstream, rule(cors));
        let reply = send(&app, request("POST", "/payments", &[], "{}")).await;
        assert_problem(&reply, 400, "key-missing");
        assert_unreadable(&reply);
    }
}

#[tokio::test]
async fn h56_there_is_never_a_star_with_credentials() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule(named().credentials(true)));
    let reply = pay_from(&app, SHOP, "a,b", "{}").await;
    assert_readable(&reply, SHOP);
    assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
    assert_unreadable(&pay_from(&app, "null", "a,b", "{}").await);
    assert_unreadable(&pay_from(&app, "https://shop.example.com.evil.org", "a,b", "{}").await);

    let app = world.app_with(&upstream, rule(Cors::any().credentials(true)));
    let reply = pay_from(&app, STRANGER, "a,b", "{}").await;
    assert_readable(&reply, "*");
    assert_eq!(reply.header("access-control-allow-credentials"), None);
    assert_eq!(reply.header("vary"), None, "it is the same for all pages");
}

#[tokio::test]
async fn h56_a_replay_is_for_the_page_that_asks_and_not_for_the_first_one() {
    let (world, upstream) = (World::new(), cors_service());
    let app = world.app_with(&upstream, rule(named().credentials(true)));
    let first = pay_from(&app, SHOP, "abc", "{}").await;
    assert_readable(&first, SHOP);
    assert_eq!(first.header("access-control-allow-credentials"), Some("true"));

    for origin in [OFFICE, SHOP] {
        let replay = pay_from(&app, origin, "abc", "{}").await;
        assert!(replay.is_replay());
        assert_readable(&replay, origin);
        assert_eq!(replay.header("access-control-allow-credentials"), Some("true"));
        assert_eq!(words(&replay.headers, "vary"), ["accept", "origin"]);
    }
    let replay = pay_from(&app, STRANGER, "abc", "{}").await;
    assert!(replay.is_replay());
    assert_eq!(replay.header("access-control-allow-origin"), None, "{replay:?}");
    assert_eq!(replay.header("access-control-allow-credentials"), None, "{replay:?}");
    let replay =
        send(&app, request("POST", "/payments", &[("idempotency-key", "abc")], "{}")).await;
    assert!(replay.is_replay());
    assert_eq!(replay.header("access-control-allow-origin"), None, "{replay:?}");
    assert_eq!(upstream.calls(), 1);
}

/// A service that knows CORS: it lets every page read, and names it.
fn cors_service() -> Upstream {
    Upstream::new(async |heard| {
        let mut response = created(heard.number);
        let headers = response.headers_mut();
        if let Some(origin) = heard.headers.get("origin") {
            headers.insert("access-control-allow-origin", origin.clone());
            headers.insert("access-control-allow-credentials", "true".parse().unwrap());
            headers.insert("access-control-expose-headers", "X-Id, Retry-After".parse().unwrap());
            headers.insert("vary", "Accept, Origin".parse().unwrap());
        }
        response
    })
}

#[tokio::test]
async fn h56_what_the_service_says_is_neither_repeated_nor_contradicted() {
    let (world, upstream) = (World::new(), cors_service());
    let app = world.app_with(&upstream, rule(named()));
    // It lets in a page that is not listed, and asks for credentials.
    let reply = pay_from(&app, STRANGER, "abc", "{}").await;
    assert_readable(&reply, STRANGER);
    assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(words(&reply.headers, "vary"), ["accept", "origin"]);
    let exposed = words(&reply.headers, "access-control-expose-headers");
    assert_eq!(exposed[..2], ["x-id", "retry-after"]);
    assert_eq!(exposed.len(), 5, "{exposed:?}");
    // Its replay for the same page says the same.
    let replay = pay_from(&app, STRANGER, "abc", "{}").await;
    assert!(replay.is_replay());
    assert_eq!(replay.header("access-control-allow-origin"), Some(STRANGER));
    assert_eq!(words(&replay.headers, "access-control-expose-headers"), exposed);
}

#[tokio::test]
async fn h56_a_service_that_lets_all_pages_in_does_so_in_replays_too() {
    let (world, upstream) = (
        World::new(),
        Upstream::answering(|| {
            let response =
                Response::builder().status(201).header("access-control-allow-origin", "*");
            response.body(Body::from("paid")).unwrap()
        }),
    );
    let app = world.app_with(&upstream, rule(named()));
    for origin in [SHOP, STRANGER, OFFICE] {
        assert_readable(&pay_from(&app, origin, "abc", "{}").await, "*");
    }
}

#[tokio::test]
async fn h56_a_service_without_cors_gets_it_from_the_layer() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().cors(named()));
    for (origin, is_replay) in [(SHOP, false), (OFFICE, true)] {
        let reply = pay_from(&app, origin, "abc", "{}").await;
        assert_eq!((reply.code(), reply.is_replay()), (201, is_replay));
        assert_readable(&reply, origin);
        let exposed = words(&reply.headers, "access-control-expose-headers");
        assert!(!exposed.contains(&"location".to_owned()), "the service decides about its headers");
    }
    assert_eq!(pay_from(&app, STRANGER, "abc", "{}").await.code(), 201);
    let unprotected = send(&app, request("POST", "/payments", &[("origin", SHOP)], "{}")).await;
    assert_readable(&unprotected, SHOP);
    assert_eq!(unprotected.header("idempotency-status"), Some("unprotected"));
}

#[tokio::test]
async fn h56_the_state_of_a_key_can_be_read_too() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "POST /payments", rule(named()));
    for (path, is_readable) in [("?path=/payments", true), ("?path=/other", false), ("", false)] {
        let path = format!("/.well-known/idempotency/abc{path}");
        let reply = send(&app, request("GET", &path, &[("origin", SHOP)], "")).await;
        let allowed = reply.header("access-control-allow-origin");
        assert_eq!(allowed, is_readable.then_some(SHOP), "{path}");
    }
}

/// A preflight of a page.
async fn ask(app: &App, path: &str, origin: &str, method: &str) -> Reply {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", method),
        ("access-control-request-headers", "idempotency-key"),
    ];
    send(app, request("OPTIONS", path, &headers, "")).await
}

#[tokio::test]
async fn h56_preflights_pass_unless_the_layer_should_answer_them() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule(named()));
    assert_eq!(ask(&app, "/payments", SHOP, "POST").await.text(), "payment 1");

    let cors = named().preflights(Preflights::Answer);
    let app = world.app_at(&upstream, "POST,PUT /payments", rule(cors));
    for (path, method) in [("/payments", "GET"), ("/payments", "DELETE"), ("/other", "POST")] {
        let calls = upstream.calls();
        ask(&app, path, SHOP, method).await;
        assert_eq!(upstream.calls(), calls + 1, "{method} {path}: no route with `cors` is for it");
    }
    // An OPTIONS that is no preflight.
    let calls = upstream.calls();
    send(&app, request("OPTIONS", "/payments", &[("origin", SHOP)], "")).await;
    assert_eq!(upstream.calls(), calls + 1);
    ask(&app, "//x/../payments/", SHOP, "PUT").await;
    assert_eq!(upstream.calls(), calls + 1, "the path has one spelling");
}

#[tokio::test]
async fn h56_an_answer_to_a_preflight_says_what_a_page_may_send() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let cors = named()
        .credentials(true)
        .preflights(Preflights::Answer)
        .headers(vec!["x-trace".parse().unwrap()])
        .max_age(std::time::Duration::from_secs(60));
    let scope = vec![ScopePart::Caller, ScopePart::Tenant("x-tenant".parse().unwrap())];
    let source = KeySource::Header("request-id".parse().unwrap());
    let rule = rule(cors).scope(scope).key_source(source);
    let app = world.app_with(&upstream, rule);
    let reply = ask(&app, "/payments", OFFICE, "PATCH").await;
    assert_eq!((reply.code(), reply.text()), (204, ""));
    assert_eq!(reply.header("access-control-allow-origin"), Some(OFFICE));
    assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(reply.header("access-control-allow-methods"), Some("PATCH"));
    assert_eq!(reply.header("access-control-max-age"), Some("60"));
    let allowed = words(&reply.headers, "access-control-allow-headers");
    let expected = [
        "authorization",
        "content-type",
        "prefer",
        "request-id",
        "x-api-key",
        "x-tenant",
        "x-trace",
    ];
    assert_eq!(allowed, expected);
    let varies = ["origin", "access-control-request-method", "access-control-request-headers"];
    assert_eq!(words(&reply.headers, "vary"), varies);

    let reply = ask(&app, "/payments", STRANGER, "PATCH").await;
    assert_eq!(reply.code(), 204);
    assert_unreadable(&reply);
    // The state of a key is asked for with its credentials, so there is a preflight as well.
    let state = "/.well-known/idempotency/abc?path=/payments";
    assert_eq!(ask(&app, state, SHOP, "GET").await.code(), 204);
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}
