//! What counts as the same request: h11 to h14.

use super::every::on_every_store;
use super::place::Place;
use super::service::reply;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;

on_every_store! {
    h11_path_query_chosen_headers_and_body_count,
    h12_bodies_are_compared_as_the_route_says,
    h13_a_mismatch_changes_and_reveals_nothing,
    h13_a_mismatch_beats_busy_and_unknown,
    h14_another_key_is_another_operation,
}

fn h11_path_query_chosen_headers_and_body_count(place: &Place) {
    let stage = place.counting(
        "[[route]]\nmatch = 'POST /calm/*'\nfingerprint.query = false\n\
         [defaults]\nfingerprint.headers = ['x-account']\n",
    );
    let ask = |path: &str, account: &str, other: &str, body: &str| {
        let headers = [("idempotency-key", "abc"), ("x-account", account), ("x-other", other)];
        stage.ask(&format!("POST {path}"), &headers, body)
    };
    assert_fresh(&ask("/a?q=1", "1", "1", "{}"), 1);
    assert_replay(&ask("/a?q=1", "1", "2", "{}"), 1);
    for (path, account, body) in [
        ("/b?q=1", "1", "{}"),
        ("/a?q=2", "1", "{}"),
        ("/a", "1", "{}"),
        ("/a?q=1", "2", "{}"),
        ("/a?q=1", "1", "[]"),
    ] {
        assert_problem(&ask(path, account, "1", body), 422, "key-mismatch");
    }
    assert_fresh(&ask("/calm/a?trace=1", "1", "1", "{}"), 2);
    assert_replay(&ask("/calm/a?trace=2", "1", "1", "{}"), 2);
    assert_problem(&ask("/calm/b", "1", "1", "{}"), 422, "key-mismatch");
}

/// On this path, these bodies are the same as the first, and those are not.
fn assert_compared(stage: &Stage, path: &str, first: &str, same: &[&str], other: &[&str]) {
    let number = stage.service.calls() + 1;
    assert_fresh(&stage.post(path, path, first), number);
    for body in same {
        assert_replay(&stage.post(path, path, body), number);
    }
    for body in other {
        assert_problem(&stage.post(path, path, body), 422, "key-mismatch");
    }
}

fn h12_bodies_are_compared_as_the_route_says(place: &Place) {
    let route = |name: &str, fingerprint: &str| {
        format!("[[route]]\nmatch = 'POST /{name}'\nfingerprint = {{ {fingerprint} }}\n")
    };
    let routes = [
        route("raw", "body = 'raw'"),
        route("form", "body = 'form'"),
        route("none", "body = 'none'"),
        route("ignore", "ignore = ['/timestamp']"),
        route("only", "only = ['/amount']"),
    ];
    let stage = place.counting(&routes.concat());
    assert_compared(&stage, "/raw", r#"{"a":1}"#, &[r#"{"a":1}"#], &[r#"{"a": 1}"#]);
    let json = r#"{"a":[1,2],"n":9007199254740993}"#;
    let same = "{ \"n\":9007199254740993,\n \"a\": [1, 2]}";
    let other = [r#"{"a":[2,1],"n":9007199254740993}"#, r#"{"a":[1,2],"n":9007199254740992}"#];
    assert_compared(&stage, "/json", json, &[same], &other);
    let first = r#"{"amount":5,"timestamp":1}"#;
    let (same, other) = (r#"{"amount":5,"timestamp":2}"#, r#"{"amount":6,"timestamp":1}"#);
    assert_compared(&stage, "/ignore", first, &[same], &[other]);
    assert_compared(&stage, "/only", first, &[same, r#"{"amount":5}"#], &[other]);
    let form = "amount=5&to=bob+smith&tag=a&tag=b";
    let same = "to=bob%20smith&tag=a&amount=5&tag=b";
    assert_compared(&stage, "/form", form, &[same], &["amount=6&to=bob+smith&tag=a&tag=b"]);
    assert_compared(&stage, "/none", "a", &["b", ""], &[]);
    // What does not parse counts byte for byte, and is no error of ours.
    assert_compared(&stage, "/broken", r#"{"a":1"#, &[r#"{"a":1"#], &[r#"{"a": 1"#]);
}

fn h13_a_mismatch_changes_and_reveals_nothing(place: &Place) {
    let stage = place.counting("");
    assert_fresh(&stage.pay("abc"), 1);
    let before = stage.count_of("complete");
    let answer = stage.post("/payments", "abc", r#"{"amount":6}"#);
    assert_problem(&answer, 422, "key-mismatch");
    assert!(!answer.text().contains("payment 1"), "{}", answer.text());
    assert_eq!((answer.header("location"), answer.header("retry-after")), (None, None));
    assert_replay(&stage.pay("abc"), 1);
    assert_eq!((stage.service.calls(), stage.count_of("complete")), (1, before));
}

fn h13_a_mismatch_beats_busy_and_unknown(place: &Place) {
    let stage = place.patient("");
    let mut first = stage.paying("abc");
    let asked = stage.service.next();
    assert_problem(&stage.pay("abc"), 409, "in-flight");
    let other = r#"{"amount":6}"#;
    assert_problem(&stage.post("/payments", "abc", other), 422, "key-mismatch");
    let headers = [("idempotency-key", "abc"), ("prefer", "wait=20")];
    assert_problem(&stage.ask("POST /payments", &headers, other), 422, "key-mismatch");
    asked.answer("500 Internal Server Error", &[], b"");
    assert_eq!(first.answer().status(), 500);
    assert_problem(&stage.post("/payments", "abc", other), 422, "key-mismatch");
    assert_problem(&stage.pay("abc"), 409, "outcome-unknown");
    assert_eq!(stage.service.calls(), 1);
}

fn h14_another_key_is_another_operation(place: &Place) {
    let content = "[[route]]\nmatch = 'POST /content'\nkey = 'content'\n";
    let stage = place.answering(content, |number, request| {
        reply("200 OK", &[], &[&request.body[..], number.to_string().as_bytes()].concat())
    });
    assert_eq!(stage.pay("a").text(), format!("{BODY}1"));
    assert_eq!(stage.pay("b").text(), format!("{BODY}2"));
    assert_eq!(stage.post("/content", "a", BODY).text(), format!("{BODY}3"));
    let again = stage.post("/content", "b", BODY);
    assert_eq!((again.text(), again.is_replay()), (format!("{BODY}3"), true));
}
