//! Errors of ours, and what is said about keys: h33, h34 and h36 to h39.

use std::collections::HashSet;

use super::every::on_every_store;
use super::place::Place;
use super::service::reply;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, until};
use crate::support::upstream::Message;

on_every_store! {
    h33_problems_are_complete_and_in_the_log,
    h34_a_body_over_the_limit_is_refused_before_any_claim,
    h34_continue_is_said_once_the_key_is_valid,
    h36_after_the_retention_a_key_is_new,
    h36_or_it_is_refused_as_expired,
    h37_the_state_of_a_key_can_be_asked_for,
    h37_only_the_same_credentials_see_it,
    h38_malformed_requests_and_files_do_not_take_the_gateway_down,
    h39_the_retention_is_advertised,
}

/// A problem as every one of ours must be; its name.
fn assert_complete(answer: &Message) -> String {
    let body = answer.json();
    let text = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("{name}: {body}"));
    assert_eq!(text("type"), format!("/.well-known/idempotency/errors/{}", text("code")));
    assert_eq!(body["status"], answer.status());
    assert!(text("title").len() > 10 && text("detail").ends_with('.'), "{body}");
    assert!(body["retryable"].is_boolean(), "{body}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    text("instance").strip_prefix("urn:uuid:").unwrap().to_owned()
}

fn h33_problems_are_complete_and_in_the_log(place: &Place) {
    let more = "breaker.enabled = false\n[[route]]\nmatch = 'POST /must'\nkey = 'required'\n";
    let stage = place.patient(more);
    let mut running = stage.paying("abc");
    let asked = stage.service.next();
    let mut problems = vec![
        (stage.ask("POST /must", &[], BODY), "key-missing"),
        (stage.pay("a,b"), "key-invalid"),
        (stage.pay("a,b"), "key-invalid"),
        (stage.post("/payments", "abc", "{}"), "key-mismatch"),
        (stage.pay("abc"), "in-flight"),
    ];
    asked.hang_up();
    problems.push((running.answer(), "upstream-failed"));
    problems.push((stage.pay("abc"), "outcome-unknown"));
    let mut names = HashSet::new();
    for (problem, code) in &problems {
        assert_problem(problem, problem.status(), code);
        let name = assert_complete(problem);
        stage.gateway.log_line(&name);
        assert!(names.insert(name), "each has a name of its own");
        let page = format!("/.well-known/idempotency/errors/{code}");
        let page = Call::get(stage.gateway.address, &page);
        assert!(page.text().starts_with(&format!("# {code}\n")), "{}", page.text());
    }
}

fn h34_a_body_over_the_limit_is_refused_before_any_claim(place: &Place) {
    const LIMIT: usize = 1000;
    let stage = place.counting(&format!("[defaults]\nrequest_body = {LIMIT}\n"));
    let key = [("idempotency-key", "abc")];
    let over = "x".repeat(LIMIT + 1);
    assert_problem(&stage.ask("POST /payments", &key, &over), 413, "body-too-large");
    // One that does not say how long it is.
    let mut call = Call::connect(stage.gateway.address);
    let head = "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: abc\r\n";
    let length = LIMIT + 1;
    let body = format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{over}\r\n0\r\n\r\n");
    call.write(format!("{head}{body}").as_bytes());
    assert_problem(&call.answer(), 413, "body-too-large");
    assert_eq!((stage.service.calls(), stage.steps()), (0, 0));
    assert_fresh(&stage.ask("POST /payments", &key, "x".repeat(LIMIT)), 1);
}

fn h34_continue_is_said_once_the_key_is_valid(place: &Place) {
    let stage = place.counting("[defaults]\nrequest_body = 1000\n");
    let begin = |key: &str, length: usize| {
        let mut call = Call::connect(stage.gateway.address);
        let head = format!(
            "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: {key}\r\n\
             expect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        );
        call.write(head.as_bytes());
        call
    };
    assert_problem(&begin("a,b", 2).answer(), 400, "key-invalid");
    assert_problem(&begin("abc\r\nidempotency-key: abc", 2).answer(), 400, "key-invalid");
    assert_problem(&begin("abc", 1001).answer(), 413, "body-too-large");
    let mut call = begin("abc", 2);
    assert_eq!(call.answer().status(), 100);
    assert_eq!((stage.service.calls(), stage.steps()), (0, 0), "and nothing is claimed yet");
    call.write(b"{}");
    assert_fresh(&call.answer(), 1);
}

/// The shortest retention that is long enough for a test to see something within it.
const SHORT: &str = "[defaults]\nlease = '500ms'\nretention = '1500ms'\n";

fn h36_after_the_retention_a_key_is_new(place: &Place) {
    let stage = place.counting(SHORT);
    assert_fresh(&stage.pay("abc"), 1);
    assert_replay(&stage.pay("abc"), 1);
    stage.until_state("abc", "absent");
    assert_fresh(&stage.pay("abc"), 2);
    assert_replay(&stage.pay("abc"), 2);
}

fn h36_or_it_is_refused_as_expired(place: &Place) {
    let stage = place.counting(&format!("{SHORT}after_retention = 'refuse 1h'\n"));
    assert_fresh(&stage.pay("abc"), 1);
    stage.until_state("abc", "expired");
    let refused = stage.pay("abc");
    assert_problem(&refused, 409, "key-expired");
    assert_complete(&refused);
    assert_problem(&stage.post("/payments", "abc", "{}"), 409, "key-expired");
    // A UUID of version 7 says itself how old it is.
    let old = "01890000-0000-7000-8000-000000000000";
    assert_problem(&stage.pay(old), 409, "key-expired");
    assert_eq!((stage.service.calls(), stage.state(old).as_str()), (1, "absent"));
}

fn h37_the_state_of_a_key_can_be_asked_for(place: &Place) {
    let stage = place.patient("[[route]]\nmatch = 'PUT /shops/{shop}'\n");
    let told = |query: &str| {
        let path = format!("/.well-known/idempotency/a%2Fb?{query}");
        let answer = Call::ask(stage.gateway.address, &path);
        assert_eq!((answer.status(), answer.header("cache-control")), (200, Some("no-store")));
        answer.json()
    };
    assert_eq!(told("path=/payments")["state"], "absent");
    let mut call = stage.paying("a/b");
    let asked = stage.service.next();
    let running = told("path=/payments&method=POST");
    assert_eq!(running["state"], "in_progress");
    assert!(running["retry_after"].as_u64().is_some_and(|seconds| seconds > 0), "{running}");
    asked.answer("201 Created", &[], b"secret");
    call.answer();
    let done = serde_json::json!({ "state": "completed", "status": 201 });
    assert_eq!(told("path=/payments"), done, "and no body");
    assert_eq!(told("path=/payments&method=PATCH")["state"], "absent");
    assert_eq!(told("path=/shops/1&method=PUT")["state"], "absent");

    let key = [("idempotency-key", "a/b")];
    let mut call = stage.sending("PUT /shops/1", &key, BODY);
    stage.service.next().answer("500 Internal Server Error", &[], b"");
    call.answer();
    let unknown = told("path=/shops/1&method=PUT");
    assert_eq!(unknown["state"], "unknown");
    assert!(unknown["since"].as_u64().is_some(), "{unknown}");
    assert_eq!(stage.service.calls(), 2);
    let wrong = Call::ask(stage.gateway.address, "/.well-known/idempotency/abc");
    assert_problem(&wrong, 400, "key-invalid");
}

fn h37_only_the_same_credentials_see_it(place: &Place) {
    let stage = place.counting("");
    let own = [("idempotency-key", "abc"), ("authorization", "Bearer a")];
    assert_fresh(&stage.ask("POST /payments", &own, BODY), 1);
    let request = "GET /.well-known/idempotency/abc?path=/payments";
    let told = |headers: &[(&str, &str)]| stage.ask(request, headers, "").json()["state"].clone();
    assert_eq!(told(&own[1..]), "completed");
    assert_eq!(told(&[("authorization", "Bearer b")]), "absent");
    assert_eq!(told(&[]), "absent");
}

/// Sends bytes that are no request and reads what comes back, if anything does.
fn shout(stage: &Stage, bytes: &[u8]) {
    let mut call = Call::connect(stage.gateway.address);
    call.write(bytes);
    call.finish();
    while let Some(answer) = call.try_answer() {
        assert!((400..500).contains(&answer.status()), "{answer:?}");
    }
}

fn h38_malformed_requests_and_files_do_not_take_the_gateway_down(place: &Place) {
    let stage = place.counting("");
    assert_fresh(&stage.pay("abc"), 1);
    let head = "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: x\r\n";
    shout(&stage, b"\x16\x03\x01\x00\xa5\x01\x00\x00");
    shout(&stage, b"POST\r\n\r\n");
    shout(&stage, format!("{head}content-length: -1\r\n\r\n").as_bytes());
    shout(&stage, format!("{head}content-length: 1\r\ncontent-length: 2\r\n\r\nab").as_bytes());
    shout(&stage, format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n").as_bytes());
    shout(&stage, format!("{head}x: {}\r\n\r\n", "y".repeat(200_000)).as_bytes());
    // A wrong value in a new file leaves the old one in force.
    let wrong = "[defaults]\nretention = 'for ever'\n";
    let at = stage.service.address();
    stage.home.configure_on(at, &place.url(), wrong);
    stage.gateway.log_line("the new configuration is wrong");
    assert_eq!(Call::get(stage.gateway.admin, "/healthz").status(), 200);
    assert_eq!(Call::get(stage.gateway.admin, "/readyz").status(), 200);
    assert_replay(&stage.pay("abc"), 1);
    assert_fresh(&stage.pay("def"), 2);
}

fn h39_the_retention_is_advertised(place: &Place) {
    let hour = "[[route]]\nmatch = 'POST /hour'\nretention = '1h'\n";
    let stage = place.answering(hour, |_, request| match request.start.contains("/long") {
        true => reply("200 OK", &[], &[b'x'; 200_000]),
        false => reply("200 OK", &[], b""),
    });
    let lifetime = |answer: &Message| {
        answer.header("idempotency-key-lifetime").map(|seconds| seconds.parse::<u64>().unwrap())
    };
    let key = [("idempotency-key", "abc")];
    for answer in [
        stage.pay("abc"),
        stage.pay("abc"),
        stage.pay("a,b"),
        stage.ask("POST /payments", &[], BODY),
        stage.post("/long", "long", BODY),
    ] {
        assert_eq!(lifetime(&answer), Some(86_400), "{}", answer.start);
    }
    assert_eq!(lifetime(&stage.ask("POST /hour", &key, BODY)), Some(3600));
    for method in ["GET", "PUT"] {
        assert_eq!(lifetime(&stage.ask(&format!("{method} /payments"), &key, "")), None);
    }
    until("the long one", || stage.post("/long", "long", BODY), Message::is_replay);
}
