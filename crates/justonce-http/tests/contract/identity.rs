//! Who asks, and where: h41 and h42.

use justonce_core::store::ListQuery;
use justonce_core::{OnLapsed, StateName, StoreErrorKind};
use justonce_http::{KeySource, Rule, ScopePart, WhenBusy};

use crate::support::reply::{Reply, assert_problem};
use crate::support::socket::{exchange, http2, serve};
use crate::support::upstream::{Upstream, status};
use crate::support::world::{App, SECOND, World, request, rule, send, spawn};

/// A payment with the key `abc` and these headers.
async fn pay(app: &App, headers: &[(&str, &str)]) -> Reply {
    pay_at(app, "/payments", headers, r#"{"amount":5}"#).await
}

async fn pay_at(app: &App, path: &str, headers: &[(&str, &str)], body: &'static str) -> Reply {
    let headers = [&[("idempotency-key", "abc")], headers].concat();
    send(app, request("POST", path, &headers, body)).await
}

#[track_caller]
fn assert_replay(reply: &Reply, number: usize) {
    let got = (reply.text().to_owned(), reply.is_replay());
    assert_eq!(got, (format!("payment {number}"), true), "{reply:?}");
}

fn by_tenant(header: &str) -> Rule {
    rule(OnLapsed::Hold).scope(vec![ScopePart::Tenant(header.parse().unwrap())])
}

#[tokio::test]
async fn h41_a_header_that_connection_names_does_not_tell_callers_apart() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, by_tenant("x-tenant"));
    assert_eq!(pay(&app, &[]).await.text(), "payment 1");
    for connection in ["x-tenant", "close, X-Tenant", "keep-alive,x-tenant"] {
        let reply = pay(&app, &[("x-tenant", "mallory"), ("connection", connection)]).await;
        assert_replay(&reply, 1);
    }
    let named = [("x-tenant", "mallory"), ("connection", "x-tenant")];
    let path = "/.well-known/idempotency/abc?path=/payments";
    let reply = send(&app, request("GET", path, &named, "")).await;
    assert_eq!(reply.json()["state"], "completed");
    let other = [("idempotency-key", "def"), named[0], named[1]];
    send(&app, request("POST", "/payments", &other, "{}")).await;
    let heard = upstream.heard(2);
    assert_eq!((heard.header("x-tenant"), heard.header("connection")), (None, None));
}

#[tokio::test]
async fn h41_a_header_that_connection_names_is_no_part_of_what_was_asked() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let mut asked = justonce_http::FingerprintRule::default();
    asked.headers.push("x-part".parse().unwrap());
    let app = world.app_with(&upstream, rule(OnLapsed::Hold).fingerprint(asked));
    assert_eq!(pay(&app, &[]).await.text(), "payment 1");
    assert_replay(&pay(&app, &[("x-part", "1"), ("connection", "x-part")]).await, 1);
    assert_problem(&pay(&app, &[("x-part", "1")]).await, 422, "key-mismatch");
}

#[tokio::test]
async fn h41_nobody_hides_a_credential_or_a_key_by_naming_it() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let own = [("authorization", "Bearer a")];
    let named = [own[0], ("connection", "authorization, idempotency-key")];
    assert_eq!(pay(&app, &own).await.text(), "payment 1");
    assert_replay(&pay(&app, &named).await, 1);
    assert_eq!(pay(&app, &[("connection", "authorization")]).await.text(), "payment 2");
}

#[tokio::test]
async fn h41_the_host_of_an_absolute_target_and_the_header_are_one_thing() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, by_tenant("host"));
    assert_eq!(pay(&app, &[("host", "shop")]).await.text(), "payment 1");
    let body = r#"{"amount":5}"#;
    assert_replay(&pay_at(&app, "http://shop/payments", &[], body).await, 1);
    assert_replay(&pay_at(&app, "http://SHOP:80/payments", &[("host", "shop")], body).await, 1);
    assert_eq!(pay(&app, &[("host", "other")]).await.text(), "payment 2");
    assert_replay(&pay_at(&app, "http://other/payments", &[], body).await, 2);
}

#[tokio::test]
async fn h41_contradictions_about_the_host_are_refused() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for (path, headers) in [
        ("http://shop/payments", &[("host", "other")][..]),
        ("http://shop:81/payments", &[("host", "shop")]),
        ("https://shop/payments", &[("host", "shop:80")]),
        ("/payments", &[("host", "shop"), ("host", "other")]),
        ("/payments", &[("host", "shop"), ("host", "shop")]),
    ] {
        let reply = pay_at(&app, path, headers, "{}").await;
        assert_problem(&reply, 400, "request-invalid");
        let reply = send(&app, request("GET", path, headers, "")).await;
        assert_problem(&reply, 400, "request-invalid");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h41_hosts_tell_tenants_apart_over_both_versions_of_http() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let address = serve(world.router(&upstream, by_tenant("host"))).await;
    for (host, number) in [("shop", 1), ("other", 2)] {
        let first = exchange(
            address,
            &format!(
                "POST /payments HTTP/1.1\r\nHost: {host}\r\nIdempotency-Key: abc\r\n\
                 Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"
            ),
        )
        .await;
        assert!(first.ends_with(&format!("payment {number}")), "{first}");
        let path = format!("http://{host}/payments");
        let again = request("POST", &path, &[("idempotency-key", "abc")], "{}");
        let again = Reply::of(http2(address, again).await).await;
        assert_replay(&again, number);
    }
}

#[tokio::test]
async fn h42_without_authorization_an_api_key_is_the_caller() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let callers: [&[(&str, &str)]; 5] = [
        &[("x-api-key", "alice")],
        &[("x-api-key", "mallory")],
        &[("authorization", "alice")],
        &[("authorization", ""), ("x-api-key", "alice")],
        &[],
    ];
    for (number, caller) in callers.iter().enumerate() {
        assert_eq!(pay(&app, caller).await.text(), format!("payment {}", number + 1), "{caller:?}");
    }
    for (number, caller) in callers.iter().enumerate() {
        assert_replay(&pay(&app, caller).await, number + 1);
    }
    // An `Authorization` says who it is, whatever else is sent.
    assert_replay(&pay(&app, &[("authorization", "alice"), ("x-api-key", "x")]).await, 3);
    assert_replay(&pay(&app, &[("authorization", "alice"), ("cookie", "a=b")]).await, 3);
    assert_replay(&pay(&app, &[("x-api-key", "alice"), ("cookie", "a=b")]).await, 1);
}

#[tokio::test]
async fn h42_one_key_on_two_hosts_is_a_mismatch() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for credentials in [&[][..], &[("authorization", "Bearer a")], &[("cookie", "s=1")]] {
        let key = format!("k{}", credentials.first().map_or("", |(name, _)| name));
        let at = |host: &str| {
            let headers = [&[("idempotency-key", &*key), ("host", host)], credentials].concat();
            request("POST", "/payments", &headers, "{}")
        };
        assert_eq!(send(&app, at("shop.example")).await.code(), 201);
        assert_problem(&send(&app, at("other.example")).await, 422, "key-mismatch");
        assert!(send(&app, at("SHOP.example:443")).await.is_replay());
    }
    assert_eq!(upstream.calls(), 3);
}

#[tokio::test]
async fn h42_a_caller_known_by_cookies_only_gets_a_replay_with_the_very_same_cookies() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let alice = [("cookie", "session=alice; theme=dark")];
    assert_eq!(pay(&app, &alice).await.text(), "payment 1");
    assert_replay(&pay(&app, &alice).await, 1);
    // HTTP/2 may send each cookie in a line of its own.
    assert_replay(&pay(&app, &[("cookie", "session=alice"), ("cookie", "theme=dark")]).await, 1);
    for other in [
        &[("cookie", "session=mallory; theme=dark")][..],
        &[("cookie", "session=alice; theme=light")],
        &[("cookie", "theme=dark; session=alice")],
        &[("cookie", "session=alice")],
        &[("cookie", "")],
        &[],
    ] {
        let reply = pay(&app, other).await;
        assert_problem(&reply, 409, "caller-differs");
        assert!(reply.header("location").is_none() && !reply.text().contains("payment"));
    }
    assert_eq!((upstream.calls(), world.states().await), (1, vec![StateName::Completed]));
}

#[tokio::test]
async fn h42_a_caller_without_anything_shares_nothing_with_one_that_has_cookies() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    assert_eq!(pay(&app, &[]).await.text(), "payment 1");
    assert_replay(&pay(&app, &[]).await, 1);
    assert_problem(&pay(&app, &[("cookie", "session=mallory")]).await, 409, "caller-differs");
}

#[tokio::test]
async fn h42_another_caller_does_not_learn_whether_the_content_is_the_same() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let (alice, mallory) = ([("cookie", "s=alice")], [("cookie", "s=mallory")]);
    pay_at(&app, "/payments", &alice, "{}").await;
    let without_name = |reply: &Reply| {
        let mut body = reply.json();
        body["instance"].take();
        (reply.code(), body)
    };
    let same = pay_at(&app, "/payments", &mallory, "{}").await;
    assert_problem(&same, 409, "caller-differs");
    for (path, headers, body) in [
        ("/payments", &mallory[..], r#"{"amount":6}"#),
        ("/payments?a=b", &mallory, "{}"),
        ("/payments", &[mallory[0], ("host", "other")], "{}"),
    ] {
        let other = pay_at(&app, path, headers, body).await;
        assert_eq!(without_name(&other), without_name(&same), "{path} {body}");
    }
    // The caller itself does.
    let changed = pay_at(&app, "/payments", &alice, r#"{"amount":6}"#).await;
    assert_problem(&changed, 422, "key-mismatch");
}

#[tokio::test]
async fn h42_duplicates_of_another_caller_neither_wait_nor_meet_what_is_running_or_unknown() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app_with(&upstream, rule(OnLapsed::Hold).when_busy(WhenBusy::Wait(SECOND)));
    let with = |cookie: &str| {
        let headers = [("idempotency-key", "abc"), ("cookie", cookie)];
        request("POST", "/payments", &headers, "{}")
    };
    let first = spawn(&app, with("s=alice"));
    upstream.called(1).await;
    assert_problem(&send(&app, with("s=mallory")).await, 409, "caller-differs");
    let waiter = spawn(&app, with("s=alice"));
    go.notify_one();
    assert_eq!(first.await.unwrap().text(), "payment 1");
    assert_replay(&waiter.await.unwrap(), 1);

    let (world, upstream) = (World::new(), Upstream::answering(|| status(500)));
    let app = world.app(&upstream);
    send(&app, with("s=alice")).await;
    assert_problem(&send(&app, with("s=alice")).await, 409, "outcome-unknown");
    assert_problem(&send(&app, with("s=mallory")).await, 409, "caller-differs");
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn h42_a_stranger_does_not_learn_the_state_of_a_key() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    pay(&app, &[("cookie", "s=alice"), ("host", "shop")]).await;
    let path = "/.well-known/idempotency/abc?path=/payments";
    for (headers, state) in [
        (&[("cookie", "s=alice"), ("host", "shop")][..], "completed"),
        (&[("cookie", "s=mallory"), ("host", "shop")], "absent"),
        (&[("host", "shop")], "absent"),
        (&[("cookie", "s=alice"), ("host", "other")], "absent"),
    ] {
        let reply = send(&app, request("GET", path, headers, "")).await;
        assert_eq!(reply.json()["state"], state, "{headers:?}");
    }
}

#[tokio::test]
async fn h42_equal_content_of_another_caller_is_neither_replayed_nor_executed() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule(OnLapsed::Hold).key_source(KeySource::Content));
    let by =
        |cookie: &str, body: &'static str| request("POST", "/events", &[("cookie", cookie)], body);
    assert_eq!(send(&app, by("s=alice", "{}")).await.text(), "payment 1");
    assert_replay(&send(&app, by("s=alice", "{}")).await, 1);
    assert_problem(&send(&app, by("s=mallory", "{}")).await, 409, "caller-differs");
    assert_eq!(send(&app, by("s=mallory", "[]")).await.text(), "payment 2");
}

#[tokio::test]
async fn h42_a_stored_request_is_not_taken_over_by_another_caller() {
    let (world, upstream) = (World::new(), Upstream::answering(|| status(500)));
    let app = world.app_with(&upstream, rule(OnLapsed::Resume).store_requests(Vec::new()));
    pay(&app, &[("cookie", "s=alice")]).await;
    // It came to no end: the next request of the same caller would execute it.
    assert_problem(&pay(&app, &[("cookie", "s=mallory")]).await, 409, "caller-differs");
    assert_eq!(upstream.calls(), 1);
    pay(&app, &[("cookie", "s=alice")]).await;
    assert_eq!(upstream.calls(), 2);
}

#[tokio::test]
async fn h42_a_cookie_can_be_the_caller() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let scope = vec![ScopePart::Cookie("session".into())];
    let app = world.app_with(&upstream, rule(OnLapsed::Hold).scope(scope));
    let callers = [
        "session=alice; theme=dark",
        "session=mallory; theme=dark",
        "session=alice; session=mallory",
        "session=mallory; session=alice",
    ];
    for (number, cookie) in callers.iter().enumerate() {
        let reply = pay(&app, &[("cookie", cookie)]).await;
        assert_eq!(reply.text(), format!("payment {}", number + 1), "{cookie}");
    }
    // Other cookies may change, and come in any order and in any number of lines.
    for cookies in [
        &[("cookie", "session=alice; theme=dark")][..],
        &[("cookie", "theme=light;session=alice")],
        &[("cookie", "seen=1"), ("cookie", "session=alice")],
    ] {
        assert_replay(&pay(&app, cookies).await, 1);
    }
    let scope = world.engine.store().list(&ListQuery::default()).await.unwrap();
    let scopes = format!("{:?}", scope.records);
    assert!(!scopes.contains("alice") && scopes.contains("cookie_0"), "{scopes}");
}

#[tokio::test]
async fn h42_without_its_cookie_a_caller_is_known_by_all_of_them() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let scope = vec![ScopePart::Cookie("session".into())];
    let app = world.app_with(&upstream, rule(OnLapsed::Hold).scope(scope));
    assert_eq!(pay(&app, &[("cookie", "theme=dark")]).await.text(), "payment 1");
    assert_replay(&pay(&app, &[("cookie", "theme=dark")]).await, 1);
    assert_problem(&pay(&app, &[("cookie", "theme=light")]).await, 409, "caller-differs");
    // An empty one is there, and names nobody either.
    assert_eq!(pay(&app, &[("cookie", "session=; x=1")]).await.text(), "payment 2");
    assert_problem(&pay(&app, &[("cookie", "session=; x=2")]).await, 409, "caller-differs");
}

#[tokio::test]
async fn h42_where_the_scope_names_no_caller_cookies_do_not_count() {
    let (world, upstream) = (World::new(), Upstream::counting());
    for (key, rule) in [("a", by_tenant("x-tenant")), ("b", rule(OnLapsed::Hold).scope(vec![]))] {
        let app = world.app_with(&upstream, rule);
        let with = |cookie| {
            request("POST", "/payments", &[("idempotency-key", key), ("cookie", cookie)], "{}")
        };
        assert_eq!(send(&app, with("s=1")).await.code(), 201);
        assert!(send(&app, with("s=2")).await.is_replay());
    }
}

#[tokio::test]
async fn h42_nothing_is_told_while_it_cannot_be_told_who_asks() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    pay(&app, &[("cookie", "s=alice")]).await;
    world.probe.fail_as("get", StoreErrorKind::Unavailable);
    let reply = pay(&app, &[("cookie", "s=mallory")]).await;
    assert_problem(&reply, 503, "store-unavailable");
}
