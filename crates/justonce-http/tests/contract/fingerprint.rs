//! What counts as the same request: h11 to h14.

use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::{Fingerprint, JsonPointer, Key, Operation, Outcome, Scope, State, StateName};
use justonce_http::{BodyMode, FingerprintRule, JsonFields, KeySource, Rule};

use crate::support::reply::assert_problem;
use crate::support::upstream::Upstream;
use crate::support::world::{World, pass, payment, request, send, spawn};

fn comparing(body: BodyMode) -> Rule {
    Rule::default().fingerprint(FingerprintRule::default().body(body))
}

fn with(body: &str) -> http::Request<axum::body::Body> {
    request("POST", "/payments", &[("idempotency-key", "abc")], body.to_owned())
}

/// Expects these bodies to be the same under a rule, and those to be different.
async fn assert_compared(rule: Rule, first: &str, same: &[&str], other: &[&str]) {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, rule);
    assert_eq!(send(&app, with(first)).await.code(), 201);
    for body in same {
        assert!(send(&app, with(body)).await.is_replay(), "{body} is the same as {first}");
    }
    for body in other {
        assert_problem(&send(&app, with(body)).await, 422, "key-mismatch");
    }
    assert_eq!(upstream.calls(), 1);
}

fn places(texts: &[&str]) -> Vec<JsonPointer> {
    texts.iter().map(|text| JsonPointer::parse(text).unwrap()).collect()
}

#[tokio::test]
async fn h11_path_query_chosen_headers_and_body_count() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let chosen = vec!["x-account".parse().unwrap()];
    let rule = FingerprintRule::default().headers(chosen);
    let app = world.app_with(&upstream, Rule::default().fingerprint(rule));
    let asked = |path: &str, account: &str, other: &str, body: &'static str| {
        let headers = [("idempotency-key", "abc"), ("x-account", account), ("x-other", other)];
        request("POST", path, &headers, body)
    };
    send(&app, asked("/a?q=1", "1", "1", "{}")).await;
    assert!(send(&app, asked("/a?q=1", "1", "2", "{}")).await.is_replay(), "others do not count");
    for other in [
        asked("/b?q=1", "1", "1", "{}"),
        asked("/a?q=2", "1", "1", "{}"),
        asked("/a", "1", "1", "{}"),
        asked("/a?q=1", "2", "1", "{}"),
        asked("/a?q=1", "1", "1", "[]"),
        request("POST", "/a?q=1", &[("idempotency-key", "abc")], "{}"),
    ] {
        assert_problem(&send(&app, other).await, 422, "key-mismatch");
    }
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn h11_the_query_counts_only_where_it_shall() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let rule = FingerprintRule::default().query(false);
    let app = world.app_with(&upstream, Rule::default().fingerprint(rule));
    let key = [("idempotency-key", "abc")];
    send(&app, request("POST", "/a?trace=1", &key, "{}")).await;
    assert!(send(&app, request("POST", "/a?trace=2", &key, "{}")).await.is_replay());
}

/// The scope of requests without credentials on the default route.
fn scope() -> Scope {
    Scope::builder().route("default").part("method", "POST").build().unwrap()
}

#[tokio::test]
async fn h11_a_record_of_another_version_causes_no_mismatch() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let operation =
        Operation::new(scope(), Key::client("abc").unwrap(), Fingerprint::from_parts(200, [7; 32]));
    let Begun::Claimed(mut claim) = world.engine.begin(&operation).await.unwrap() else {
        panic!("it is new");
    };
    let outcome = Outcome::builder().status(202).body("old").build().unwrap();
    let _ = claim.complete(outcome).await.unwrap();
    let reply = send(&world.app(&upstream), with("{}")).await;
    assert_eq!((reply.code(), reply.text(), reply.is_replay()), (202, "old", true));
    assert_eq!(upstream.calls(), 0);
}

#[tokio::test]
async fn h11_the_version_is_stored() {
    let (world, upstream) = (World::new(), Upstream::counting());
    send(&world.app(&upstream), with("{}")).await;
    let version = world.record().await.subject.fingerprint.version();
    assert_eq!(version, Fingerprint::REQUEST);
}

#[tokio::test]
async fn h12_raw_compares_byte_for_byte() {
    assert_compared(comparing(BodyMode::Raw), r#"{"a":1}"#, &[r#"{"a":1}"#], &[r#"{"a": 1}"#])
        .await;
}

#[tokio::test]
async fn h12_json_ignores_order_and_white_space_but_not_arrays_and_digits() {
    let first = r#"{"a":[1,2],"n":9007199254740993,"d":1.50}"#;
    let same = ["{ \"d\": 15e-1, \"n\":9007199254740993,\n \"a\": [1, 2]}"];
    let other = [
        r#"{"a":[2,1],"n":9007199254740993,"d":1.50}"#,
        r#"{"a":[1,2],"n":9007199254740992,"d":1.50}"#,
        r#"{"a":[1,2],"n":"9007199254740993","d":1.50}"#,
        r#"{"a":[1,2],"d":1.50}"#,
    ];
    assert_compared(Rule::default(), first, &same, &other).await;
}

#[tokio::test]
async fn h12_json_places_can_be_ignored() {
    let ignoring = BodyMode::Json(JsonFields::Without(places(&["/timestamp", "/meta/id"])));
    let same =
        [r#"{"amount":5,"timestamp":2,"meta":{"id":9,"x":1}}"#, r#"{"amount":5,"meta":{"x":1}}"#];
    let other = [r#"{"amount":6,"timestamp":1,"meta":{"id":1,"x":1}}"#, r#"{"amount":5}"#];
    let first = r#"{"amount":5,"timestamp":1,"meta":{"id":1,"x":1}}"#;
    assert_compared(comparing(ignoring), first, &same, &other).await;
}

#[tokio::test]
async fn h12_json_places_can_be_chosen() {
    let only = BodyMode::Json(JsonFields::Only(places(&["/amount", "/to"])));
    let same = [r#"{"to":"bob","amount":5,"x":2}"#, r#"{"to":"bob","amount":5}"#];
    let other = [r#"{"to":"eve","amount":5,"x":1}"#, r#"{"amount":5}"#];
    assert_compared(comparing(only), r#"{"amount":5,"to":"bob","x":1}"#, &same, &other).await;
}

#[tokio::test]
async fn h12_forms_are_compared_by_their_fields() {
    let first = "amount=5&to=bob+smith&tag=a&tag=b";
    let same = ["to=bob%20smith&tag=a&amount=5&tag=b"];
    let other = ["amount=5&to=bob+smith&tag=b&tag=a", "amount=6&to=bob+smith&tag=a&tag=b"];
    assert_compared(comparing(BodyMode::Form), first, &same, &other).await;
}

#[tokio::test]
async fn h12_bodies_can_be_left_out() {
    assert_compared(comparing(BodyMode::Ignored), "a", &["b", ""], &[]).await;
}

#[tokio::test]
async fn h12_what_does_not_parse_counts_byte_for_byte() {
    let wrong = r#"{"a":1"#;
    assert_compared(Rule::default(), wrong, &[wrong], &[r#"{"a": 1"#]).await;
    let repeated = r#"{"a":1,"a":2}"#;
    assert_compared(Rule::default(), repeated, &[repeated], &[r#"{"a":2}"#]).await;
    let ignoring = BodyMode::Json(JsonFields::Without(places(&["/a"])));
    assert_compared(comparing(ignoring), wrong, &[wrong], &[r#"{"a":2"#]).await;
    let form = comparing(BodyMode::Form);
    assert_compared(form, "a=%zz&b=1", &["a=%zz&b=1"], &["b=1&a=%zz"]).await;
}

#[tokio::test]
async fn h13_other_content_is_a_mismatch_and_changes_and_reveals_nothing() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    send(&app, with(r#"{"secret":1}"#)).await;
    let before = world.record().await;
    let reply = send(&app, with(r#"{"secret":2}"#)).await;
    assert_problem(&reply, 422, "key-mismatch");
    assert_eq!(world.record().await, before, "nothing is changed or extended");
    assert!(!reply.text().contains("payment 1") && !reply.text().contains("secret"));
    assert_eq!((reply.header("location"), reply.header("retry-after")), (None, None));
    assert!(send(&app, with(r#"{"secret":1}"#)).await.is_replay());
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn h13_a_mismatch_beats_busy_and_unknown() {
    let (world, (upstream, go)) = (World::new(), Upstream::waiting());
    let app = world.app(&upstream);
    let first = spawn(&app, with("1"));
    upstream.called(1).await;
    assert_problem(&send(&app, with("1")).await, 409, "in-flight");
    assert_problem(&send(&app, with("2")).await, 422, "key-mismatch");
    let mut patient = with("2");
    patient.headers_mut().insert("prefer", "wait=10".parse().unwrap());
    assert_problem(&send(&app, patient).await, 422, "key-mismatch");
    go.notify_one();
    assert_eq!(first.await.unwrap().code(), 201);

    let failing = Upstream::answering(|| crate::support::upstream::status(500));
    let app = world.app(&failing);
    send(&app, payment("unknown")).await;
    let mut other = payment("unknown");
    *other.body_mut() = "other".into();
    assert_problem(&send(&app, other).await, 422, "key-mismatch");
    assert_problem(&send(&app, payment("unknown")).await, 409, "outcome-unknown");
}

#[tokio::test(start_paused = true)]
async fn h13_a_mismatch_does_not_extend_the_retention() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    send(&app, with("1")).await;
    let expires = |record: justonce_core::Record| match record.state {
        State::Completed(settled) => settled.expires_at,
        _ => panic!("it is completed"),
    };
    let before = expires(world.record().await);
    pass(Duration::from_secs(3600)).await;
    send(&app, with("2")).await;
    send(&app, with("1")).await;
    assert_eq!(expires(world.record().await), before, "nor does a replay");
}

#[tokio::test]
async fn h14_another_key_with_the_same_body_is_another_operation() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app(&upstream);
    assert_eq!(send(&app, payment("a")).await.text(), "payment 1");
    assert_eq!(send(&app, payment("b")).await.text(), "payment 2");
    assert_eq!(world.states().await, [StateName::Completed; 2]);
}

#[tokio::test]
async fn h14_unless_the_content_is_the_key() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, Rule::default().key_source(KeySource::Content));
    assert_eq!(send(&app, payment("a")).await.text(), "payment 1");
    let second = send(&app, payment("b")).await;
    assert_eq!((second.text(), second.is_replay()), ("payment 1", true));
}

#[tokio::test]
async fn h14_a_content_key_agrees_with_how_bodies_are_compared() {
    let world = World::new();
    let upstream = Upstream::counting();
    let rule = comparing(BodyMode::Raw).key_source(KeySource::Content);
    let app = world.app_with(&upstream, rule);
    // Different bytes are different operations, never a mismatch.
    for body in [r#"{"a":1}"#, r#"{"a": 1}"#] {
        assert_eq!(send(&app, with(body)).await.code(), 201);
    }
    assert_eq!(upstream.calls(), 2);

    let chosen = vec!["x-account".parse().unwrap()];
    let rule = FingerprintRule::default().headers(chosen).query(false);
    let rule = Rule::default().fingerprint(rule).key_source(KeySource::Content);
    let app = world.app_at(&upstream, "POST /b", rule);
    let by = |account: &str, path: &str| request("POST", path, &[("x-account", account)], "{}");
    assert_eq!(send(&app, by("1", "/b?x=1")).await.code(), 201);
    assert!(send(&app, by("1", "/b?x=2")).await.is_replay());
    assert_eq!(send(&app, by("2", "/b?x=1")).await.text(), "payment 4");
}
