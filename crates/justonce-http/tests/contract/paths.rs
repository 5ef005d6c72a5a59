//! Which requests a route is for, however they are written: h44 and h45.

use justonce_core::OnLapsed;
use justonce_http::{KeyPresence, PathEscapes, Rule};

use crate::support::reply::{Reply, assert_problem};
use crate::support::socket::{exchange, http2, serve};
use crate::support::upstream::Upstream;
use crate::support::world::{App, World, request, rule, send};

fn required() -> Rule {
    rule(OnLapsed::Hold).key_presence(KeyPresence::Required)
}

/// Ways to write one path.
const SPELLINGS: [&str; 11] = [
    "/payments",
    "/payments/",
    "//payments",
    "///payments//",
    "/./payments",
    "/payments/.",
    "/x/../payments",
    "/x/%2e%2e/payments",
    "/x/.%2E/payments/",
    "/../payments",
    "/p%61yments",
];

async fn keyed(app: &App, method: &str, path: &str, more: &[(&str, &str)]) -> Reply {
    let headers = [&[("idempotency-key", "abc")], more].concat();
    send(app, request(method, path, &headers, "{}")).await
}

#[tokio::test]
async fn h44_an_upgrade_on_a_protected_method_changes_nothing_about_protection() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, required());
    let upgrades: [&[(&str, &str)]; 4] = [
        &[("connection", "upgrade"), ("upgrade", "x")],
        &[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")],
        &[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AA")],
        &[("upgrade", "x")],
    ];
    for upgrade in upgrades {
        let bare = send(&app, request("POST", "/payments", upgrade, "{}")).await;
        assert_problem(&bare, 400, "key-missing");
        assert_eq!(keyed(&app, "POST", "/payments", upgrade).await.text(), "payment 1");
    }
    let heard = upstream.heard(1);
    for name in ["connection", "upgrade", "http2-settings"] {
        assert_eq!(heard.header(name), None, "{name}");
    }
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn h44_a_websocket_passes_untouched() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, required());
    let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
    assert_eq!(keyed(&app, "GET", "/payments", &upgrade).await.code(), 201);
    let heard = upstream.heard(1);
    assert_eq!(heard.header("upgrade"), Some("websocket"));
    assert_eq!(heard.header("connection"), Some("Upgrade"));
    assert_eq!(world.probe.log(), [""; 0]);
}

#[tokio::test]
async fn h45_one_key_on_two_spellings_of_one_path_is_one_operation() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "POST /payments", required());
    for path in SPELLINGS {
        let bare = send(&app, request("POST", path, &[], "{}")).await;
        assert_problem(&bare, 400, "key-missing");
        let reply = keyed(&app, "POST", path, &[]).await;
        assert_eq!(reply.text(), "payment 1", "{path}");
    }
    assert_eq!((upstream.calls(), world.states().await.len()), (1, 1));
}

#[tokio::test]
async fn h45_the_service_gets_the_path_that_was_matched() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "POST /payments", rule(OnLapsed::Hold));
    for (number, (sent, heard)) in [
        ("/x/../payments?a=/../b", "/payments?a=/../b"),
        ("//payments//", "/payments/"),
        ("/p%61yments/%c3%a9", "/payments/%C3%A9"),
        ("/a%2Bb;c=1,2", "/a%2Bb;c=1,2"),
        ("/", "/"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = number.to_string();
        send(&app, request("POST", sent, &[("idempotency-key", &key)], "{}")).await;
        assert_eq!(upstream.heard(number + 1).uri.to_string(), heard);
    }
    // What is never protected is not matched, and passes as it is.
    send(&app, request("GET", "//a/../b", &[], "")).await;
    assert_eq!(upstream.heard(6).uri, "//a/../b");
    // An unprotected route is no way into another one.
    send(&app, request("DELETE", "/payments/../x//y", &[], "")).await;
    assert_eq!(upstream.heard(7).uri, "/x/y");
}

#[tokio::test]
async fn h45_a_path_that_two_readers_read_differently_is_refused() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "POST /payments", required());
    for path in [
        "/payments%2f",
        "/payments%2Fx",
        "/x%2F..%2Fpayments",
        "/payments%5c",
        "/x%5C..%5Cpayments",
        "/x\\..\\payments",
        "/payments%00",
        "/payments%00.html",
        "payments",
    ] {
        for method in ["POST", "PATCH", "PUT", "DELETE"] {
            let reply = keyed(&app, method, path, &[]).await;
            assert_problem(&reply, 400, "request-invalid");
        }
    }
    // What is never protected may have any path, but must have one.
    assert_problem(&keyed(&app, "GET", "payments", &[]).await, 400, "request-invalid");
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
    assert_eq!(keyed(&app, "GET", "/payments%2f", &[]).await.code(), 201);
    assert_eq!(keyed(&app, "OPTIONS", "*", &[]).await.code(), 201);
}

#[tokio::test]
async fn h45_the_state_of_a_key_is_found_under_every_spelling() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_at(&upstream, "POST /payments", required());
    keyed(&app, "POST", "/payments", &[]).await;
    for path in SPELLINGS {
        let query = path.replace('%', "%25");
        let path = format!("/.well-known/idempotency/abc?path={query}");
        let reply = send(&app, request("GET", &path, &[], "")).await;
        assert_eq!(reply.json()["state"], "completed", "{path}");
    }
}

#[tokio::test]
async fn h45_over_sockets_of_both_versions_of_http() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, required())).await;
    let over_http1 = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: abc\r\nConnection: close\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        )
    };
    for path in SPELLINGS {
        let answer = exchange(address, &over_http1(path)).await;
        assert!(answer.ends_with("payment 1"), "{path}: {answer}");
        let uri = format!("http://shop{path}");
        let sent = request("POST", &uri, &[("idempotency-key", "abc")], "{}");
        let reply = Reply::of(http2(address, sent).await).await;
        assert_eq!(reply.text(), "payment 1", "{path}");
    }
    for path in ["/payments%2f", "payments", "/payments%00", "/a\\b"] {
        let answer = exchange(address, &over_http1(path)).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
    }
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn h45_a_route_may_allow_what_others_refuse() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = required().path_escapes(PathEscapes::Allow);
    let app = world.app_at(&upstream, "POST /files/*", rule);
    for (number, (sent, heard)) in [
        ("/files/a%2fb", "/files/a%2Fb"),
        ("/files/a\\b", "/files/a%5Cb"),
        ("/files/%00", "/files/%00"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = number.to_string();
        for _ in 0..2 {
            send(&app, request("POST", sent, &[("idempotency-key", &key)], "{}")).await;
        }
        assert_eq!(upstream.heard(number + 1).uri, heard);
        assert_eq!(upstream.calls(), number + 1);
    }
    // A part of a name is no segment, and other routes go on to refuse it.
    for path in ["/files%2Fa", "/other/a%2fb", "/files/../x%2Fy"] {
        assert_problem(&keyed(&app, "POST", path, &[]).await, 400, "request-invalid");
    }
}

#[tokio::test]
async fn h45_a_method_in_other_letters_is_no_way_around_a_route() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = Rule::default().key_presence(justonce_http::KeyPresence::Required);
    let app = world.app_at(&upstream, "POST,PUT /payments", rule);
    for method in ["post", "Post", "pOST", "put", "patch", "Delete"] {
        let reply = send(&app, request(method, "/payments", &[], "{}")).await;
        assert_problem(&reply, 400, "request-invalid");
    }
    assert_eq!(upstream.calls(), 0, "services that do not mind take it for a POST");
}
