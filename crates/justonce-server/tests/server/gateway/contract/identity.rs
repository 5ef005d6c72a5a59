//! Who asks, and where: h41 and h42.

use super::every::{on_every_store, on_shared_stores};
use super::http2;
use super::place::Place;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::Call;
use crate::support::upstream::Message;

on_every_store! {
    h41_what_connection_names_tells_nobody_apart,
    h41_what_the_gateway_says_itself_is_not_the_clients_to_say,
    h41_the_host_is_one_thing_in_all_its_places,
    h42_an_api_key_is_a_caller,
    h42_one_key_on_two_hosts_is_a_mismatch,
    h42_other_cookies_get_neither_a_replay_nor_an_execution,
    h42_other_cookies_do_not_wait_for_what_runs,
    h42_a_cookie_can_be_the_caller,
}

on_shared_stores! {
    h42_other_cookies_are_refused_by_another_gateway_too,
}

fn pay(stage: &Stage, headers: &[(&str, &str)]) -> Message {
    stage.ask("POST /payments", &[&[("idempotency-key", "abc")], headers].concat(), BODY)
}

/// A payment whose head is written by hand.
fn pay_raw(stage: &Stage, target: &str, head: &str) -> Message {
    let mut call = Call::connect(stage.gateway.address);
    let text = format!(
        "POST {target} HTTP/1.1\r\n{head}idempotency-key: abc\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    call.write(text.as_bytes());
    call.answer()
}

fn h41_what_connection_names_tells_nobody_apart(place: &Place) {
    let stage = place.counting("[defaults]\nscope = ['tenant:header:x-tenant']\n");
    assert_fresh(&pay(&stage, &[]), 1);
    let named = [("x-tenant", "mallory"), ("connection", "keep-alive, X-Tenant")];
    assert_replay(&pay(&stage, &named), 1);
}

fn h41_what_the_gateway_says_itself_is_not_the_clients_to_say(place: &Place) {
    let stage = place.counting("[defaults]\nscope = ['tenant:header:x-forwarded-host']\n");
    assert_fresh(&pay(&stage, &[("x-forwarded-host", "a"), ("prefer", "x")]), 1);
    assert_eq!(stage.service.heard(1).all("x-forwarded-host"), ["test"]);
    assert_replay(&pay(&stage, &[("x-forwarded-host", "b")]), 1);
    assert_replay(&pay(&stage, &[("connection", "x-forwarded-host")]), 1);
    let path = "GET /.well-known/idempotency/abc?path=/payments";
    let state = stage.ask(path, &[("x-forwarded-host", "b")], "").json()["state"].clone();
    assert_eq!(state, "completed");
    let over_http2 =
        [("idempotency-key", "abc"), ("x-forwarded-host", "c"), ("x-forwarded-proto", "d")];
    let answer = http2::post(stage.gateway.address, "/payments", &over_http2, BODY);
    assert_eq!((answer.text().as_str(), answer.is_replay()), ("payment 1", true));
}

fn h41_the_host_is_one_thing_in_all_its_places(place: &Place) {
    let stage = place.counting("[defaults]\nscope = ['tenant:header:host']\n");
    for (number, host) in [(1, "shop.example"), (2, "other.example")] {
        assert_fresh(&pay_raw(&stage, "/payments", &format!("host: {host}\r\n")), number);
        let absolute = format!("http://{host}/payments");
        assert_replay(&pay_raw(&stage, &absolute, &format!("host: {host}\r\n")), number);
        assert_replay(&pay_raw(&stage, &absolute, &format!("host: {host}:80\r\n")), number);
        let key = [("idempotency-key", "abc")];
        let answer = http2::post_to(stage.gateway.address, &absolute, &key, BODY, &[]);
        assert_eq!(answer.text(), format!("payment {number}"));
        assert!(answer.is_replay());
    }
    let absolute = "http://shop.example/payments";
    for head in ["host: other.example\r\n", "host: shop.example:81\r\n"] {
        let answer = pay_raw(&stage, absolute, head);
        assert_problem(&answer, 400, "request-invalid");
    }
    let two = pay_raw(&stage, "/payments", "host: shop.example\r\nhost: shop.example\r\n");
    assert_eq!(two.status(), 400);
    let headers = [("idempotency-key", "abc"), ("host", "other.example")];
    let answer = http2::post_to(stage.gateway.address, absolute, &headers, BODY, &[]);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(stage.service.calls(), 2);
}

fn h42_an_api_key_is_a_caller(place: &Place) {
    let stage = place.counting("");
    assert_fresh(&pay(&stage, &[("x-api-key", "alice")]), 1);
    assert_fresh(&pay(&stage, &[("x-api-key", "mallory")]), 2);
    assert_fresh(&pay(&stage, &[("authorization", "alice")]), 3);
    assert_replay(&pay(&stage, &[("x-api-key", "alice"), ("cookie", "seen=1")]), 1);
    assert_replay(&pay(&stage, &[("authorization", "alice"), ("x-api-key", "mallory")]), 3);
}

fn h42_one_key_on_two_hosts_is_a_mismatch(place: &Place) {
    let stage = place.counting("");
    let at = |host: &str| pay_raw(&stage, "/payments", &format!("host: {host}\r\n"));
    assert_fresh(&at("shop.example"), 1);
    assert_problem(&at("other.example"), 422, "key-mismatch");
    assert_replay(&at("SHOP.example:80"), 1);
    let key = [("idempotency-key", "abc")];
    let other = "http://other.example/payments";
    let answer = http2::post_to(stage.gateway.address, other, &key, BODY, &[]);
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (422, "key-mismatch"));
}

fn h42_other_cookies_get_neither_a_replay_nor_an_execution(place: &Place) {
    let stage = place.counting("");
    let (alice, mallory) = ([("cookie", "s=alice; t=1")], [("cookie", "s=mallory; t=1")]);
    assert_fresh(&pay(&stage, &alice), 1);
    assert_replay(&pay(&stage, &alice), 1);
    for other in [&mallory[..], &[("cookie", "s=alice; t=2")], &[]] {
        assert_problem(&pay(&stage, other), 409, "caller-differs");
    }
    let other_body = [&[("idempotency-key", "abc")], &mallory[..]].concat();
    let answer = stage.ask("POST /payments", &other_body, "{}");
    assert_problem(&answer, 409, "caller-differs");
    let own_body = [&[("idempotency-key", "abc")], &alice[..]].concat();
    assert_problem(&stage.ask("POST /payments", &own_body, "{}"), 422, "key-mismatch");
    // Over HTTP/2 each cookie may have a line of its own.
    let lines = [("idempotency-key", "abc"), ("cookie", "s=alice"), ("cookie", "t=1")];
    let answer = http2::post(stage.gateway.address, "/payments", &lines, BODY);
    assert_eq!((answer.text().as_str(), answer.is_replay()), ("payment 1", true));
    let lines = [lines[0], ("cookie", "s=mallory"), lines[2]];
    let answer = http2::post(stage.gateway.address, "/payments", &lines, BODY);
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (409, "caller-differs"));
    // Other callers do not learn its state.
    let path = "GET /.well-known/idempotency/abc?path=/payments";
    let state = |headers: &[(&str, &str)]| stage.ask(path, headers, "").json()["state"].clone();
    assert_eq!(state(&alice), "completed");
    assert_eq!(state(&mallory), "absent");
    assert_eq!(stage.service.calls(), 1);
    // The page that explains it says how to set it right.
    let page = stage.ask("GET /.well-known/idempotency/errors/caller-differs", &[], "").text();
    assert!(page.contains(r#"scope = ["cookie:session"]"#), "{page}");
}

fn h42_other_cookies_do_not_wait_for_what_runs(place: &Place) {
    let stage = place.patient("");
    let key = ("idempotency-key", "abc");
    let mut first = stage.sending("POST /payments", &[key, ("cookie", "s=alice")], BODY);
    let asked = stage.service.next();
    let waiting = [key, ("cookie", "s=mallory"), ("prefer", "wait=20")];
    assert_problem(&stage.ask("POST /payments", &waiting, BODY), 409, "caller-differs");
    let mut waiter =
        stage.sending("POST /payments", &[key, ("cookie", "s=alice"), ("prefer", "wait=20")], BODY);
    stage.until_waiters(1);
    asked.answer("201 Created", &[], b"payment 1");
    assert_fresh(&first.answer(), 1);
    assert_replay(&waiter.answer(), 1);
}

fn h42_a_cookie_can_be_the_caller(place: &Place) {
    let stage = place.counting("[defaults]\nscope = ['cookie:session']\n");
    assert_fresh(&pay(&stage, &[("cookie", "session=alice; seen=1")]), 1);
    assert_fresh(&pay(&stage, &[("cookie", "session=mallory; seen=1")]), 2);
    assert_replay(&pay(&stage, &[("cookie", "seen=2; session=alice")]), 1);
    let lines = [("idempotency-key", "abc"), ("cookie", "seen=3"), ("cookie", "session=mallory")];
    let answer = http2::post(stage.gateway.address, "/payments", &lines, BODY);
    assert_eq!((answer.text().as_str(), answer.is_replay()), ("payment 2", true));
}

fn h42_other_cookies_are_refused_by_another_gateway_too(place: &Place) {
    let stage = place.counting("");
    let second = place.second(&stage);
    assert_fresh(&pay(&stage, &[("cookie", "s=alice")]), 1);
    let at_second = |cookie: &str| {
        let headers = [("idempotency-key", "abc"), ("cookie", cookie)];
        Call::send(second.address, "POST /payments", &headers, BODY).answer()
    };
    assert_problem(&at_second("s=mallory"), 409, "caller-differs");
    assert_replay(&at_second("s=alice"), 1);
    // Also once the outcome is kept in that gateway.
    assert_problem(&at_second("s=mallory"), 409, "caller-differs");
}
