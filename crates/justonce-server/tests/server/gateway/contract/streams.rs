//! Long answers: h30 and h31.

use super::every::on_every_store;
use super::place::Place;
use super::service::reply;
use super::stage::assert_problem;
use crate::support::client::Call;

on_every_store! {
    h30_an_answer_over_the_limit_is_delivered_whole_and_never_freed,
    h31_pieces_are_forwarded_while_they_are_captured,
    h31_an_answer_that_breaks_off_is_unknown,
    h31_a_caller_that_reads_nothing_does_not_keep_the_outcome_from_being_stored,
}

/// Text of any length.
fn text(size: usize) -> Vec<u8> {
    (b'a'..=b'z').flat_map(|letter| [letter; 7]).cycle().take(size).collect()
}

fn h30_an_answer_over_the_limit_is_delivered_whole_and_never_freed(place: &Place) {
    const LIMIT: usize = 100_000;
    let more = format!("[defaults]\nstored_response_body = {LIMIT}\n");
    let sizes = [LIMIT, LIMIT + 1, 3 * LIMIT];
    let stage = place.answering(&more, move |number, _| {
        reply("201 Created", &[("location", "/reports/1")], &text(sizes[number - 1]))
    });
    assert!(stage.pay("at").body == text(LIMIT));
    let replay = stage.pay("at");
    assert!(replay.is_replay() && replay.body == text(LIMIT), "at the limit it is replayed");
    for (key, size) in [("over", LIMIT + 1), ("far", 3 * LIMIT)] {
        assert!(stage.pay(key).body == text(size), "delivered whole");
        for _ in 0..2 {
            let answer = stage.pay(key);
            assert_problem(&answer, 409, "outcome-too-large");
            assert_eq!(answer.header("location"), Some("/reports/1"));
            let body = answer.json();
            assert_eq!((&body["stored_status"], &body["retryable"]), (&201.into(), &false.into()));
            assert_eq!(body["stored_bytes"], size);
            assert!(!answer.is_replay());
        }
        assert_eq!(stage.state(key), "completed");
    }
    assert_eq!(stage.service.calls(), 3);
}

/// Reads until the bytes end with this.
fn read_until(call: &mut Call, end: &str) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        seen.extend(call.some(1));
    }
    String::from_utf8_lossy(&seen).into_owned()
}

fn h31_pieces_are_forwarded_while_they_are_captured(place: &Place) {
    let stage = place.patient("");
    let mut call = stage.paying("abc");
    let mut asked = stage.service.next();
    asked.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    // The caller has the first part before there is a second.
    let head = read_until(&mut call, "first");
    assert!(!head.contains("idempotent-replayed"), "{head}");
    assert_eq!(stage.state("abc"), "in_progress");
    assert_problem(&stage.pay("abc"), 409, "in-flight");
    let mut waiter = stage.sending(
        "POST /payments",
        &[("idempotency-key", "abc"), ("prefer", "wait=25")],
        crate::gateway::stage::BODY,
    );
    stage.until_waiters(1);
    asked.write(b"6\r\nsecond\r\n0\r\n\r\n");
    let waited = waiter.answer();
    assert_eq!((waited.text().as_str(), waited.is_replay()), ("firstsecond", true));
    read_until(&mut call, "0\r\n\r\n");
    assert_eq!(stage.state("abc"), "completed", "before the last byte");
    assert_eq!(stage.pay("abc").text(), "firstsecond");
    assert_eq!(stage.service.calls(), 1);
}

fn h31_an_answer_that_breaks_off_is_unknown(place: &Place) {
    let stage = place.patient("breaker.enabled = false\n");
    let starts = [
        ("length", "HTTP/1.1 200 OK\r\ncontent-length: 500000\r\n\r\n".to_owned()),
        (
            "chunks",
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n", 500_000),
        ),
    ];
    for (key, start) in starts {
        let mut call = stage.paying(key);
        let mut asked = stage.service.next();
        asked.write(start.as_bytes());
        asked.write(&text(200_000));
        call.some(50_000);
        asked.hang_up();
        assert!(call.try_answer().is_none(), "half an answer must not look whole");
        stage.until_state(key, "unknown");
        assert_problem(&stage.pay(key), 409, "outcome-unknown");
    }
    assert_eq!(stage.service.calls(), 2);
}

fn h31_a_caller_that_reads_nothing_does_not_keep_the_outcome_from_being_stored(place: &Place) {
    const SIZE: usize = 3_000_000;
    let stage = place.answering("", |_, _| reply("201 Created", &[], &text(SIZE)));
    let mut call = stage.paying("abc");
    stage.until_state("abc", "completed");
    let replay = stage.pay("abc");
    assert!(replay.is_replay() && replay.body == text(SIZE), "the replay differs");
    assert!(call.answer().body == text(SIZE), "it was all kept for the caller");
}
