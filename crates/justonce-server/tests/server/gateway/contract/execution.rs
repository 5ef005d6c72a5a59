//! What happens between the claim and the outcome: h18 to h25.

use std::net::TcpListener;

use nix::sys::signal::Signal;

use super::every::{on_every_store, on_shared_stores};
use super::place::Place;
use super::service::{counted, reply};
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, until};
use crate::support::upstream::Message;

on_every_store! {
    h18_the_claim_is_stored_before_the_upstream_hears_anything,
    h18_the_outcome_is_stored_before_the_caller_has_the_answer,
    h19_an_operation_goes_on_without_its_caller,
    h20_half_a_body_claims_nothing,
    h21_what_was_not_reached_was_not_executed,
    h22_a_failure_after_the_request_was_sent_is_held_as_unknown,
    h22_or_the_next_request_executes_again,
    h23_the_lease_is_renewed_while_the_upstream_works,
    h23_renewal_ends_at_the_cap,
    h25_the_upstream_learns_key_attempt_and_fence,
}

on_shared_stores! {
    h23_renewal_ends_with_the_process,
    h24_after_a_takeover_the_old_owners_caller_gets_the_winners_outcome,
    h24_or_409_if_there_is_none_yet,
}

fn h18_the_claim_is_stored_before_the_upstream_hears_anything(place: &Place) {
    let stage = place.patient("[defaults]\nlease = '1s'\n");
    let _call = stage.paying("abc");
    let _asked = stage.service.next();
    // Nothing that the gateway had not stored by now survives this.
    let stage = stage.killed_and_restarted();
    let state = stage.state("abc");
    assert!(matches!(state.as_str(), "in_progress" | "unknown"), "{state}");
    assert_problem(&stage.pay_patiently("abc"), 409, "outcome-unknown");
    assert_eq!(stage.service.calls(), 1);
}

fn h18_the_outcome_is_stored_before_the_caller_has_the_answer(place: &Place) {
    let mut stage = place.counting("");
    for number in 1..=3 {
        let key = format!("k{number}");
        assert_fresh(&stage.pay(&key), number);
        stage = stage.killed_and_restarted();
        assert_replay(&stage.pay(&key), number);
    }
    assert_eq!(stage.service.calls(), 3);
}

fn h19_an_operation_goes_on_without_its_caller(place: &Place) {
    let stage = place.patient("");
    let call = stage.paying("abc");
    let asked = stage.service.next();
    drop(call);
    assert_eq!(stage.state("abc"), "in_progress");
    asked.answer("201 Created", &[], b"payment 1");
    stage.until_state("abc", "completed");
    assert_replay(&stage.pay("abc"), 1);
    assert_eq!(stage.service.calls(), 1);
}

fn h20_half_a_body_claims_nothing(place: &Place) {
    let stage = place.counting("");
    let head = "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: abc\r\n";
    for body in ["content-length: 100\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n5\r\nab"] {
        let mut call = Call::connect(stage.gateway.address);
        call.write(format!("{head}{body}").as_bytes());
        call.finish();
        // Once the gateway has closed the connection too, it has done all it will do.
        while call.try_answer().is_some() {}
        assert_eq!(stage.state("abc"), "absent");
    }
    assert_eq!((stage.service.calls(), stage.count_of("begin")), (0, 0));
    assert_fresh(&stage.pay("abc"), 1);
}

fn h21_what_was_not_reached_was_not_executed(place: &Place) {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let stage = place.counting("");
    let home = crate::support::process::Home::new();
    let store = place.url();
    let there = stage.service.address();
    // The store has one user at a time where it is embedded.
    let Stage { gateway, service, .. } = stage;
    drop(gateway);
    home.configure_on(nobody, &store, "breaker.enabled = false\n");
    let stage = Stage { gateway: home.start(), home, service };
    for _ in 0..3 {
        assert_problem(&stage.pay("abc"), 502, "upstream-unreachable");
        assert_eq!(stage.state("abc"), "absent");
    }
    let Stage { gateway, service, home } = stage;
    drop(gateway);
    home.configure_on(there, &store, "");
    let stage = Stage { gateway: home.start(), home, service };
    assert_fresh(&stage.pay("abc"), 1);
}

/// Expects an operation to be unknown, and nothing to be executed again.
fn assert_held(stage: &Stage, key: &str) {
    let calls = stage.service.calls();
    for _ in 0..2 {
        let answer = stage.pay(key);
        assert_problem(&answer, 409, "outcome-unknown");
        assert_eq!(answer.json()["retryable"], false);
    }
    assert_eq!((stage.service.calls(), stage.state(key).as_str()), (calls, "unknown"));
}

fn h22_a_failure_after_the_request_was_sent_is_held_as_unknown(place: &Place) {
    let stage = place.patient(
        "breaker.enabled = false\n[[route]]\nmatch = 'POST /slow'\nresponse_timeout = '200ms'\n",
    );
    let mut reset = stage.paying("reset");
    stage.service.next().hang_up();
    assert_problem(&reset.answer(), 502, "upstream-failed");
    assert_held(&stage, "reset");

    let mut early = stage.paying("early");
    let mut asked = stage.service.next();
    asked.write(b"HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\nab");
    asked.hang_up();
    assert_problem(&early.answer(), 502, "upstream-failed");
    assert_held(&stage, "early");

    for (key, status) in [("bad", "502 Bad Gateway"), ("late", "504 Gateway Timeout")] {
        let mut call = stage.paying(key);
        stage.service.next().answer(status, &[], b"");
        assert_eq!(call.answer().start, format!("HTTP/1.1 {status}"));
        assert_held(&stage, key);
    }

    let slow = [("idempotency-key", "slow")];
    let mut call = stage.sending("POST /slow", &slow, BODY);
    let _asked = stage.service.next();
    assert_problem(&call.answer(), 504, "upstream-failed");
    assert_problem(&stage.ask("POST /slow", &slow, BODY), 409, "outcome-unknown");
    assert_eq!(stage.service.calls(), 5);
}

fn h22_or_the_next_request_executes_again(place: &Place) {
    let stage = place.patient("[defaults]\non_lapsed = 'rerun'\n");
    let mut first = stage.paying("abc");
    stage.service.next().hang_up();
    assert_problem(&first.answer(), 502, "upstream-failed");
    let mut retry = stage.paying("abc");
    let asked = stage.service.next();
    assert_eq!(asked.header("idempotency-attempt"), Some("2"));
    asked.answer("201 Created", &[], b"payment 2");
    assert_fresh(&retry.answer(), 2);
    assert_replay(&stage.pay("abc"), 2);
}

fn h23_the_lease_is_renewed_while_the_upstream_works(place: &Place) {
    let stage = place.patient("[defaults]\nlease = '600ms'\non_lapsed = 'rerun'\n");
    let mut first = stage.paying("abc");
    let asked = stage.service.next();
    // A third of a lease each: this is longer than one.
    until("renewals", || stage.count_of("renew"), |count| *count >= 5);
    assert_problem(&stage.pay("abc"), 409, "in-flight");
    assert_eq!(stage.state("abc"), "in_progress");
    asked.answer("201 Created", &[], b"payment 1");
    assert_fresh(&first.answer(), 1);
    assert_replay(&stage.pay("abc"), 1);
    assert_eq!(stage.service.calls(), 1);
}

fn h23_renewal_ends_at_the_cap(place: &Place) {
    let policy = "lease = '400ms'\nlease_cap = '900ms'\nresponse_timeout = '900ms'\n";
    let stage = place.patient(&format!("[defaults]\n{policy}"));
    let mut call = stage.paying("abc");
    let mut asked = stage.service.next();
    // The answer has begun, so that only the cap can end it.
    asked.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    assert!(call.try_answer().is_none(), "half an answer must not look whole");
    stage.until_state("abc", "unknown");
    assert_held(&stage, "abc");
}

fn h23_renewal_ends_with_the_process(place: &Place) {
    let stage = place.patient("[defaults]\nlease = '500ms'\n");
    let second = place.second(&stage);
    let _call = stage.paying("abc");
    let _asked = stage.service.next();
    let Stage { gateway, service, .. } = stage;
    gateway.kill();
    // Another gateway finds it lapsed by itself.
    let answer = Call::pay_with(second.address, "abc", BODY, "prefer: wait=20\r\n").answer();
    assert_problem(&answer, 409, "outcome-unknown");
    assert_eq!(service.calls(), 1);
}

const RERUN: &str = "[defaults]\nlease = '300ms'\non_lapsed = 'rerun'\n";

fn fence(message: &Message) -> u64 {
    message.header("idempotency-fence").unwrap().parse().unwrap()
}

fn h24_after_a_takeover_the_old_owners_caller_gets_the_winners_outcome(place: &Place) {
    let stage = place.patient(RERUN);
    let second = place.second(&stage);
    let mut first = stage.paying("abc");
    let old = stage.service.next();
    // The owner stands still, and its lease runs out.
    stage.gateway.signal(Signal::SIGSTOP);
    let mut winner = Call::pay_with(second.address, "abc", BODY, "prefer: wait=20\r\n");
    let new = stage.service.next();
    assert_eq!(new.header("idempotency-attempt"), Some("2"));
    assert!(fence(&new.request) > fence(&old.request), "fences grow");
    new.answer("201 Created", &[], b"payment 2");
    assert_fresh(&winner.answer(), 2);
    old.answer("201 Created", &[], b"payment 1");
    stage.gateway.signal(Signal::SIGCONT);
    assert_replay(&first.answer(), 2);
    assert_replay(&stage.pay("abc"), 2);
}

fn h24_or_409_if_there_is_none_yet(place: &Place) {
    let stage = place.patient(RERUN);
    let second = place.second(&stage);
    let mut first = stage.paying("abc");
    let old = stage.service.next();
    stage.gateway.signal(Signal::SIGSTOP);
    let mut winner = Call::pay_with(second.address, "abc", BODY, "prefer: wait=20\r\n");
    let new = stage.service.next();
    old.answer("201 Created", &[], b"payment 1");
    stage.gateway.signal(Signal::SIGCONT);
    let answer = first.answer();
    assert_problem(&answer, 409, "superseded");
    assert_eq!(answer.json()["retryable"], true);
    new.answer("201 Created", &[], b"payment 2");
    assert_fresh(&winner.answer(), 2);
    assert_replay(&stage.pay("abc"), 2);
}

fn h25_the_upstream_learns_key_attempt_and_fence(place: &Place) {
    let stage = place.answering("[defaults]\non_lapsed = 'rerun'\n", |number, _| match number {
        1 => reply("500 Internal Server Error", &[], b""),
        number => counted(number),
    });
    let forged = [
        ("idempotency-key", "\"abc\";v=1"),
        ("idempotency-attempt", "99"),
        ("idempotency-attempt", "98"),
        ("idempotency-fence", "99"),
    ];
    for number in [1, 2] {
        stage.ask("POST /payments", &forged, BODY);
        let heard = stage.service.heard(number);
        assert_eq!(heard.all("idempotency-key"), ["abc"]);
        assert_eq!(heard.all("idempotency-attempt"), [number.to_string()]);
        assert_eq!(heard.all("idempotency-fence").len(), 1);
        assert_eq!(heard.text(), BODY);
    }
    let fences = [1, 2].map(|number| fence(&stage.service.heard(number)));
    assert!(fences[1] > fences[0], "{fences:?}");
    // Only the gateway sets them, also where nothing is protected.
    stage.ask("GET /payments", &forged[1..], "");
    let heard = stage.service.heard(3);
    assert_eq!(heard.header("idempotency-attempt").or(heard.header("idempotency-fence")), None);
}
