//! What becomes of an operation when the service or the caller breaks off.

use std::sync::atomic::Ordering;

use crate::client::{Call, pay, state, until};
use crate::process::Home;
use crate::stage::{BODY, started};
use crate::upstream::Upstream;

#[test]
fn h19_an_operation_goes_on_without_its_caller() {
    let (_home, upstream, gateway) = started("");
    let call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    drop(call);
    // The gateway has noticed: it answers others, and the operation still runs.
    assert_eq!(state(gateway.address, "k"), "in_progress");
    connection.answer("201 Created", &[], b"paid");
    until("the outcome", || state(gateway.address, "k"), |state| state == "completed");
    let retry = pay(gateway.address, "k", BODY);
    assert_eq!((retry.status(), retry.text().as_str()), (201, "paid"));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
}

#[test]
fn h20_half_a_body_claims_nothing() {
    let (_home, upstream, gateway) = started("");
    let mut call = Call::connect(gateway.address);
    call.write(
        b"POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: k\r\n\
          content-length: 100\r\n\r\nhalf",
    );
    drop(call);
    assert_eq!(state(gateway.address, "k"), "absent");
    assert!(upstream.is_left_alone());
    let asked = upstream.serve();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn h21_what_was_not_reached_was_not_executed() {
    let home = Home::new();
    let address = Upstream::new().address();
    home.configure(address, "");
    let gateway = home.start();
    let answer = pay(gateway.address, "k", BODY);
    assert_eq!((answer.status(), answer.code().as_str()), (502, "upstream-unreachable"));
    assert_eq!(state(gateway.address, "k"), "absent");
    // At once, with the same key.
    let asked = Upstream::at(address).serve();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn h22_a_broken_connection_is_unknown_under_hold() {
    let (_home, upstream, gateway) = started("");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    drop(connection);
    let answer = call.answer();
    assert_eq!((answer.status(), answer.code().as_str()), (502, "upstream-failed"));
    let retry = pay(gateway.address, "k", BODY);
    assert_eq!((retry.status(), retry.code().as_str()), (409, "outcome-unknown"));
    assert!(upstream.is_left_alone(), "it was executed again");
}

#[test]
fn h22_a_broken_connection_runs_again_under_rerun() {
    let (_home, upstream, gateway) = started("[defaults]\non_lapsed = 'rerun'\n");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    drop(connection);
    assert_eq!(call.answer().status(), 502);
    let mut retry = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    assert_eq!(connection.read().header("idempotency-attempt"), Some("2"));
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(retry.answer().status(), 201);
}

#[test]
fn h22_a_late_answer_is_unknown() {
    let (_home, upstream, gateway) = started("[defaults]\nresponse_timeout = '300ms'\n");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    let answer = call.answer();
    assert_eq!((answer.status(), answer.code().as_str()), (504, "upstream-failed"));
    assert_eq!(pay(gateway.address, "k", BODY).code(), "outcome-unknown");
}

#[test]
fn h26_statuses_are_kept_released_or_unknown() {
    let (_home, upstream, gateway) = started("");
    let mut connection = None;
    let mut answered = |key: &str, status: &str, headers: &[(&str, &str)]| {
        let mut call = Call::pay(gateway.address, key, BODY);
        let connection = connection.get_or_insert_with(|| upstream.accept());
        connection.read();
        connection.answer(status, headers, b"");
        assert_eq!(call.answer().start, format!("HTTP/1.1 {status}"));
        state(gateway.address, key)
    };
    assert_eq!(answered("a", "200 OK", &[]), "completed");
    assert_eq!(answered("b", "302 Found", &[]), "completed");
    assert_eq!(answered("c", "404 Not Found", &[]), "completed");
    assert_eq!(answered("d", "429 Too Many Requests", &[]), "absent");
    assert_eq!(answered("e", "401 Unauthorized", &[]), "absent");
    assert_eq!(answered("f", "500 Internal Server Error", &[]), "unknown");
    assert_eq!(answered("g", "503 Service Unavailable", &[("retry-after", "1")]), "absent");
    assert_eq!(answered("h", "503 Service Unavailable", &[]), "unknown");
    let outcome = |value| [("idempotency-outcome", value)];
    assert_eq!(answered("i", "500 Internal Server Error", &outcome("final")), "completed");
    assert_eq!(answered("j", "200 OK", &outcome("retryable")), "absent");
    assert_eq!(answered("k", "200 OK", &outcome("unknown")), "unknown");
}

#[test]
fn h31_an_answer_that_breaks_off_is_unknown() {
    let (_home, upstream, gateway) = started("");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    connection.begin_answer("201 Created", &[], 500_000);
    connection.write(&[b'x'; 200_000]);
    call.some(50_000);
    drop(connection);
    assert!(call.try_answer().is_none(), "half an answer must not look whole");
    until("unknown", || state(gateway.address, "k"), |state| state == "unknown");
    assert_eq!(pay(gateway.address, "k", BODY).code(), "outcome-unknown");
}

#[test]
fn h31_a_chunked_answer_arrives_while_it_is_captured() {
    let (_home, upstream, gateway) = started("");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    // The caller has the first part before there is a second.
    let mut seen = Vec::new();
    while !seen.ends_with(b"first") {
        seen.extend(call.some(1));
    }
    assert_eq!(state(gateway.address, "k"), "in_progress");
    connection.write(b"6\r\nsecond\r\n0\r\n\r\n");
    until("the outcome", || state(gateway.address, "k"), |state| state == "completed");
    assert_eq!(pay(gateway.address, "k", BODY).text(), "firstsecond");
}

#[test]
fn h30_an_answer_over_the_limit_is_delivered_and_never_freed() {
    let (_home, upstream, gateway) = started("[defaults]\nstored_response_body = '100KiB'\n");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    let body = vec![b'x'; 300_000];
    connection.answer("201 Created", &[("location", "/payments/17")], &body);
    assert!(call.answer().body == body, "delivered whole");
    let replay = pay(gateway.address, "k", BODY);
    assert_eq!((replay.status(), replay.code().as_str()), (409, "outcome-too-large"));
    assert_eq!(replay.header("location"), Some("/payments/17"));
    assert!(replay.text().contains("\"stored_status\":201"), "{}", replay.text());
    assert!(upstream.is_left_alone());
}
