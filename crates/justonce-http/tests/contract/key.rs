//! Where keys come from and what they must look like: h01 to h10.

use axum::body::Body;
use http::Request;
use justonce_core::{JsonPointer, StateName};
use justonce_http::{
    KeyFormat, KeyPresence, KeyShape, KeySource, KeySyntax, Rule, ScopePart, headers,
};

use crate::support::reply::assert_problem;
use crate::support::upstream::Upstream;
use crate::support::world::{App, World, payment, request, send};

const STRICT: KeySyntax = KeySyntax::Strict;

/// Sends one payment under each of these keys, and expects all of them to be one operation.
async fn assert_same(rule: Rule, keys: &[&str]) {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule);
    for key in keys {
        let reply = send(&app, payment(key)).await;
        assert_eq!((reply.code(), reply.text()), (201, "payment 1"), "{key}");
    }
    assert_eq!(upstream.calls(), 1);
}

/// Sends one payment under each of these keys, and expects all of them to be refused.
async fn assert_refused(rule: Rule, keys: &[&str]) {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule);
    for key in keys {
        assert_problem(&send(&app, payment(key)).await, 400, "key-invalid");
    }
    assert_eq!(upstream.calls(), 0, "nothing reaches the service");
    assert_eq!(world.probe.log(), [""; 0], "nothing reaches the store");
}

#[tokio::test]
async fn h01_a_string_is_the_key_and_its_parameters_are_ignored() {
    let keys = [r#""abc""#, r#""abc";v=1"#, r#""abc"; a="b,c"; d=?1"#, r#" "abc" "#];
    assert_same(Rule::default().key_syntax(STRICT), &keys).await;
    assert_same(Rule::default(), &keys).await;
}

#[tokio::test]
async fn h01_escapes_in_a_string_are_resolved() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_syntax(STRICT));
    send(&app, payment(r#""a\"b\\c""#)).await;
    let operation = upstream.heard(1).operation.unwrap();
    assert_eq!(operation.key().as_str(), r#"a"b\c"#);
}

#[tokio::test]
async fn h02_strict_refuses_everything_but_a_string() {
    let wrong = [
        "abc",             // a token
        "17",              // an integer
        "1.5",             // a decimal
        "?1",              // a boolean
        ":YWJj:",          // bytes
        "@1659578233",     // a date
        r#"%"abc""#,       // a display string
        r#""abc", "def""#, // a list
        r#"("abc")"#,      // an inner list
        r#""abc" def"#,    // trailing garbage
        r#""abc""def""#,   // trailing garbage
        r#""abc"#,         // an unterminated quote
        r#""a\bc""#,       // a wrong escape
        r#"abc="def""#,    // a dictionary
        "8e03978e-40d5-43dd-bc93-6894a57f9324",
    ];
    assert_refused(Rule::default().key_syntax(STRICT), &wrong).await;
}

#[tokio::test]
async fn h03_lenient_takes_plain_text_as_it_is() {
    assert_same(Rule::default(), &["abc", r#""abc""#, r#""abc";v=1"#]).await;
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let plain = ["17", "abc;v=1", "?1", ":YWJj:", "a=b", r"a\b", "8e03978e-40d5-43dd-bc93"];
    for (number, key) in plain.iter().enumerate() {
        assert_eq!(send(&app, payment(key)).await.code(), 201, "{key}");
        let operation = upstream.heard(number + 1).operation.unwrap();
        assert_eq!(operation.key().as_str(), *key);
    }
}

#[tokio::test]
async fn h03_lenient_refuses_commas_quotes_and_what_is_not_visible() {
    let wrong = ["a,b", r#"a"b"#, r#""abc"#, r#""abc" def"#, "a b", "a\tb", "\"a\tb\""];
    assert_refused(Rule::default(), &wrong).await;
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for bytes in [&b"caf\xc3\xa9"[..], b"\xff\xfe", b"abc\x80"] {
        let mut odd = payment("replaced");
        odd.headers_mut().insert(headers::KEY, bytes.try_into().unwrap());
        assert_problem(&send(&app, odd).await, 400, "key-invalid");
    }
    assert_eq!(upstream.calls(), 0);
}

#[tokio::test]
async fn h04_two_lines_are_refused_also_where_they_are_equal() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for (first, second) in [("abc", "def"), ("abc", "abc"), ("abc", "")] {
        let mut twice = payment(first);
        twice.headers_mut().append(headers::KEY, second.parse().unwrap());
        let reply = send(&app, twice).await;
        assert_problem(&reply, 400, "key-invalid");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h05_an_empty_key_is_refused() {
    assert_refused(Rule::default(), &["", " ", r#""""#]).await;
    assert_refused(Rule::default().key_syntax(STRICT), &["", r#""""#, r#""";a=1"#]).await;
}

#[tokio::test]
async fn h05_the_length_counts_after_unescaping() {
    let quotes = format!("\"{}\"", r#"\""#.repeat(255));
    let plain = "x".repeat(255);
    for fits in [quotes.as_str(), plain.as_str()] {
        assert_same(Rule::default(), &[fits, fits]).await;
    }
    let (long, quoted) = ("x".repeat(256), format!("\"{}\"", "x".repeat(256)));
    assert_refused(Rule::default(), &[&long, &quoted, &"x".repeat(9000)]).await;
}

#[tokio::test]
async fn h05_a_route_may_demand_a_length_a_uuid_or_a_form() {
    let format = |min, max, shape| {
        Rule::default().key_format(KeyFormat::default().length(min..=max).shape(shape))
    };
    let length = format(3, 5, KeyShape::Any);
    assert_same(length.clone(), &["abc", r#""abc""#]).await;
    assert_same(length.clone(), &["abcde"]).await;
    assert_refused(length, &["ab", "abcdef", r#""ab""#]).await;

    let uuid = format(1, 255, KeyShape::Uuid);
    assert_same(uuid.clone(), &["8e03978e-40d5-43dd-bc93-6894a57f9324"]).await;
    assert_refused(uuid, &["abc", "8e03978e-40d5-43dd-bc93"]).await;

    let pattern = || KeyShape::Matches(regex::Regex::new("^ord_[0-9]+$").unwrap());
    assert_same(format(1, 255, pattern()), &["ord_17"]).await;
    assert_refused(format(1, 255, pattern()), &["17", "ord_", "ord_17x"]).await;
}

#[tokio::test]
async fn h06_the_key_is_checked_before_anything_is_looked_up() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let reply = send(&app, payment("sk_live,secret")).await;
    assert_problem(&reply, 400, "key-invalid");
    assert!(!reply.text().contains("sk_live"), "the problem does not show the key");
    assert_eq!(world.probe.log(), [""; 0]);
}

#[tokio::test]
async fn h07_a_missing_key_is_refused_where_it_is_required() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_presence(KeyPresence::Required));
    let reply = send(&app, request("POST", "/payments", &[], "{}")).await;
    assert_problem(&reply, 400, "key-missing");
    let link = reply.header("link").unwrap();
    let page = reply.json()["type"].as_str().unwrap().to_owned();
    assert_eq!(link, format!("<{page}>; rel=\"describedby\""));
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h07_a_missing_key_passes_where_it_is_optional() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    for expected in ["payment 1", "payment 2"] {
        let reply = send(&app, request("POST", "/payments", &[], "{}")).await;
        assert_eq!((reply.code(), reply.text()), (201, expected));
        assert_eq!(reply.header("idempotency-status"), Some("unprotected"));
    }
    assert!(upstream.heard(1).operation.is_none());
    assert_eq!(world.probe.log(), [""; 0]);
}

#[tokio::test]
async fn h07_where_keys_are_off_they_are_not_looked_at() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_presence(KeyPresence::Off));
    for expected in ["payment 1", "payment 2"] {
        assert_eq!(send(&app, payment("not, valid")).await.text(), expected);
    }
    assert_eq!(world.probe.log(), [""; 0]);
}

/// Expects the first two requests to be one operation, and the third another.
async fn assert_source(app: &App, upstream: &Upstream, requests: [Request<Body>; 3]) {
    let [first, second, other] = requests;
    assert_eq!(send(app, first).await.text(), "payment 1");
    let replay = send(app, second).await;
    assert_eq!((replay.text(), replay.is_replay()), ("payment 1", true));
    assert_eq!(send(app, other).await.text(), "payment 2");
    assert_eq!(upstream.calls(), 2);
}

#[tokio::test]
async fn h07_a_missing_key_is_asked_for_where_the_route_wants_it() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let pointer = justonce_core::JsonPointer::parse("/order/id").unwrap();
    for (source, place) in [
        (KeySource::default(), "the header Idempotency-Key,"),
        (KeySource::Header("x-request-id".parse().unwrap()), "the header X-Request-Id,"),
        (KeySource::Json(pointer), "a string or number at /order/id,"),
        (KeySource::Query("order".into()), "the query parameter order,"),
    ] {
        let rule = Rule::default().key_presence(KeyPresence::Required).key_source(source);
        let app = world.app_with(&upstream, rule);
        let reply = send(&app, request("POST", "/payments", &[], "{}")).await;
        assert_problem(&reply, 400, "key-missing");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(place), "{detail}");
    }
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h08_the_key_may_come_from_another_header() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let source = KeySource::Header("paypal-request-id".parse().unwrap());
    let app = world.app_with(&upstream, Rule::default().key_source(source));
    let with = |key: &str| request("POST", "/payments", &[("PayPal-Request-Id", key)], "{}");
    assert_source(&app, &upstream, [with("a"), with("\"a\""), with("b")]).await;
    assert_eq!(upstream.heard(1).header("idempotency-key"), Some("a"), "the service hears it");

    let mut twice = with("a");
    twice.headers_mut().append("paypal-request-id", "a".parse().unwrap());
    assert_problem(&send(&app, twice).await, 400, "key-invalid");
}

#[tokio::test]
async fn h08_the_key_may_come_from_the_body() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let source = KeySource::Json(JsonPointer::parse("/order/id").unwrap());
    let rule = Rule::default().key_source(source).key_presence(KeyPresence::Required);
    let app = world.app_with(&upstream, rule);
    let with = |body: &str| request("POST", "/orders", &[], body.to_owned());
    let same = [r#"{"order":{"id":"a"}}"#, r#"{ "order" : {"id":"a"} }"#, r#"{"order":{"id":7}}"#];
    assert_source(&app, &upstream, same.map(with)).await;

    for missing in ["", "{}", "no json", r#"{"order":{"id":null}}"#] {
        assert_problem(&send(&app, with(missing)).await, 400, "key-missing");
    }
    for wrong in [r#"{"order":{"id":{}}}"#, r#"{"order":{"id":true}}"#, r#"{"order":{"id":""}}"#] {
        assert_problem(&send(&app, with(wrong)).await, 400, "key-invalid");
    }
    assert_eq!(upstream.calls(), 2);
}

#[tokio::test]
async fn h08_the_key_may_come_from_the_query() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_source(KeySource::Query("id".into())));
    let with = |path: &str| request("POST", path, &[], "{}");
    let requests = [with("/pay?id=a%2Db"), with("/pay?id=a%2Db"), with("/pay?id=c")];
    assert_source(&app, &upstream, requests).await;
    assert_problem(&send(&app, with("/pay?id=a&id=b")).await, 400, "key-invalid");
    assert_problem(&send(&app, with("/pay?id=")).await, 400, "key-invalid");
}

#[tokio::test]
async fn h08_the_content_may_be_the_key() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_source(KeySource::Content));
    let host = [("host", "host")];
    let with = |body: &str| request("POST", "/events?a=1", &host, body.to_owned());
    let bodies = [r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#, r#"{"a":1,"b":3}"#];
    assert_source(&app, &upstream, bodies.map(with)).await;

    // The same request over HTTP/2 names its host in the address.
    let absolute = request("POST", "http://host/events?a=1", &[], bodies[0]);
    assert!(send(&app, absolute).await.is_replay());
    // Everything that is compared is part of the key: nothing here can mismatch.
    for path in ["/events?a=2", "/events", "/other?a=1"] {
        assert_eq!(send(&app, request("POST", path, &[], bodies[0])).await.code(), 201, "{path}");
    }
    assert_eq!(upstream.calls(), 5);
}

#[tokio::test]
async fn h09_safe_methods_never_touch_the_store() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_presence(KeyPresence::Required));
    let mut calls = 0;
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"] {
        for headers in [&[][..], &[("idempotency-key", "abc")]] {
            let reply = send(&app, request(method, "/payments", headers, "")).await;
            calls += 1;
            assert_eq!(reply.text(), format!("payment {calls}"), "{method}");
            assert_eq!(reply.header("idempotency-status"), None);
        }
    }
    assert_eq!(world.probe.log(), [""; 0]);
}

#[tokio::test]
async fn h09_post_and_patch_are_protected_and_put_and_delete_opt_in() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let keyed =
        |method: &str, path: &str| request(method, path, &[("idempotency-key", "abc")], "{}");
    let mut calls = 0;
    for (method, executions) in [("POST", 1), ("PATCH", 1), ("PUT", 2), ("DELETE", 2)] {
        send(&app, keyed(method, "/a")).await;
        send(&app, keyed(method, "/a")).await;
        calls += executions;
        assert_eq!(upstream.calls(), calls, "{method}");
    }
    let app = world.app_at(&upstream, "PUT,DELETE /a", Rule::default());
    for method in ["PUT", "DELETE"] {
        send(&app, keyed(method, "/a")).await;
        assert!(send(&app, keyed(method, "/a")).await.is_replay(), "{method}");
        assert!(!send(&app, keyed(method, "/b")).await.is_replay(), "{method}");
    }
}

#[tokio::test]
async fn h10_two_principals_with_one_key_never_meet() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let by = |credentials: &[(&str, &str)]| {
        let mut headers = vec![("idempotency-key", "abc")];
        headers.extend_from_slice(credentials);
        request("POST", "/payments", &headers, "{}")
    };
    let callers: [&[(&str, &str)]; 5] = [
        &[],
        &[("authorization", "")],
        &[("authorization", "Bearer a")],
        &[("authorization", "Bearer b")],
        &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
    ];
    for (number, caller) in callers.iter().enumerate() {
        let reply = send(&app, by(caller)).await;
        assert_eq!(reply.text(), format!("payment {}", number + 1), "{caller:?}");
    }
    for (number, caller) in callers.iter().enumerate() {
        let reply = send(&app, by(caller)).await;
        assert_eq!(reply.text(), format!("payment {}", number + 1), "{caller:?}");
        assert!(reply.is_replay());
    }
    assert_eq!(world.states().await, [StateName::Completed; 5]);
}

#[tokio::test]
async fn h10_tenant_principal_method_and_route_are_parts_of_the_name() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let scope = vec![
        ScopePart::Tenant("x-tenant".parse().unwrap()),
        ScopePart::Principal(http::header::AUTHORIZATION),
    ];
    let rule = Rule::default().scope(scope);
    let app = world.app_at(&upstream, "POST,PATCH /a", rule);
    let with = |method: &str, tenant: &str, principal: &str, key: &str| {
        let headers =
            [("x-tenant", tenant), ("authorization", principal), ("idempotency-key", key)];
        request(method, "/a", &headers, "{}")
    };
    let all = [
        ("POST", "t", "p", "k"),
        ("PATCH", "t", "p", "k"),
        ("POST", "u", "p", "k"),
        ("POST", "t", "q", "k"),
        ("POST", "t", "p", "l"),
        // Parts cannot be shifted into each other.
        ("POST", "tp", "", "k"),
        ("POST", "", "tp", "k"),
    ];
    for (method, tenant, principal, key) in all {
        assert_eq!(send(&app, with(method, tenant, principal, key)).await.code(), 201);
    }
    assert_eq!(upstream.calls(), all.len());
    let stored = format!("{:?}", world.states().await);
    assert_eq!(stored.matches("Completed").count(), all.len());
    // Another route has other names.
    let other = world.app(&upstream);
    assert!(!send(&other, with("POST", "t", "p", "k")).await.is_replay());
}

#[tokio::test]
async fn h10_credentials_are_kept_as_a_hash_only() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    let headers = [("idempotency-key", "abc"), ("authorization", "Bearer sk_live_1")];
    send(&app, request("POST", "/payments", &headers, "{}")).await;
    let scope = world.record().await.subject.scope.as_str().to_owned();
    assert!(!scope.contains("sk_live_1") && scope.contains("principal"), "{scope}");
}

#[tokio::test]
async fn h10_a_caller_who_cannot_be_told_is_refused() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = Rule::default().scope(vec![ScopePart::Tenant("x-tenant".parse().unwrap())]);
    let app = world.app_with(&upstream, rule);
    let long = "t".repeat(2000);
    let headers = [("idempotency-key", "abc"), ("x-tenant", &long)];
    assert_problem(&send(&app, request("POST", "/a", &headers, "")).await, 400, "key-invalid");
    assert_eq!((upstream.calls(), world.probe.log().len()), (0, 0));
}

#[tokio::test]
async fn h57_a_key_in_quotes_may_contain_spaces() {
    for rule in [Rule::default(), Rule::default().key_syntax(STRICT)] {
        let (world, upstream) = (World::new(), Upstream::counting());
        let app = world.app_with(&upstream, rule);
        // Each space counts, also those at both ends.
        let keys =
            [r#""order 17""#, r#""order  17""#, r#"" order 17""#, r#""order 17 ""#, r#"" ""#];
        for (number, key) in keys.iter().enumerate() {
            let text = format!("payment {}", number + 1);
            let first = send(&app, payment(key)).await;
            assert_eq!((first.text(), first.is_replay()), (text.as_str(), false), "{key}");
            let second = send(&app, payment(&format!("{key};v=1"))).await;
            assert_eq!((second.text(), second.is_replay()), (text.as_str(), true), "{key}");
            // Without its quotes the service would see another key.
            assert_eq!(upstream.heard(number + 1).header("idempotency-key"), Some(*key));
        }
        let operation = upstream.heard(3).operation.unwrap();
        assert_eq!(operation.key().as_str(), " order 17");
    }
}

#[tokio::test]
async fn h57_a_key_in_a_json_body_is_in_quotes_and_one_in_the_query_is_not() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let source = KeySource::Json(JsonPointer::parse("/order").unwrap());
    let app = world.app_with(&upstream, Rule::default().key_source(source));
    let reply = send(&app, request("POST", "/a", &[], r#"{"order":"a b"}"#)).await;
    assert_eq!(reply.code(), 201);
    assert_eq!(upstream.heard(1).header("idempotency-key"), Some(r#""a b""#));

    let rule = Rule::default().key_source(KeySource::Query("id".into()));
    let app = world.app_with(&upstream, rule);
    for path in ["/a?id=a+b", "/a?id=a%20b", "/a?id=+"] {
        let reply = send(&app, request("POST", path, &[], "")).await;
        assert_problem(&reply, 400, "key-invalid");
        assert!(reply.json()["detail"].as_str().unwrap().contains("%2B"), "{reply:?}");
    }
    assert_eq!(send(&app, request("POST", "/a?id=a%2Bb", &[], "")).await.code(), 201);
    assert_eq!(upstream.calls(), 2);
}

#[tokio::test]
async fn h57_the_state_of_a_key_with_spaces_can_be_asked_for() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    send(&app, payment(r#""order 17""#)).await;
    for (key, state) in [("order%2017", "completed"), ("order17", "absent")] {
        let path = format!("/.well-known/idempotency/{key}?path=/payments");
        let reply = send(&app, request("GET", &path, &[], "")).await;
        assert_eq!(reply.json()["state"], state, "{key}");
    }
}
