//! Limits per caller: h47.

use std::net::Ipv4Addr;

use nix::sys::signal::Signal;

use super::every::on_every_store;
use super::http2;
use super::place::Place;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::Call;
use crate::support::upstream::Message;

on_every_store! {
    h47_over_the_rate_nothing_is_claimed_and_others_go_on,
    h47_five_slow_calls_of_one_caller_do_not_stop_others,
    h47_an_anonymous_caller_cannot_fill_the_store,
    h47_who_is_not_identified_is_known_by_the_address,
    h47_a_reload_does_not_give_new_limits,
}

#[track_caller]
fn assert_limited(answer: &Message, limit: &str) {
    assert_problem(answer, 429, "limit-reached");
    assert_eq!(answer.json()["limit"], limit);
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(wait > 0, "{answer:?}");
}

/// A payment of a caller that is under way.
fn sending(stage: &Stage, caller: &str, key: &str) -> Call {
    let headers = [("authorization", caller), ("idempotency-key", key)];
    stage.sending("POST /payments", &headers, BODY)
}

fn h47_over_the_rate_nothing_is_claimed_and_others_go_on(place: &Place) {
    let stage = place.counting("[defaults.per_caller]\nrate = '2/h'\n");
    let pay = |caller: &str, key: &str| sending(&stage, caller, key).answer();
    assert_fresh(&pay("ann", "a"), 1);
    assert_fresh(&pay("ann", "b"), 2);
    let begins = stage.count_of("begin");
    assert_limited(&pay("ann", "c"), "rate");
    let headers = [("authorization", "ann"), ("idempotency-key", "c")];
    let answer = http2::post(stage.gateway.address, "/payments", &headers, BODY);
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (429, "limit-reached"));
    assert_eq!(stage.count_of("begin"), begins, "nothing is claimed");
    let asked = [("authorization", "ann")];
    let path = "GET /.well-known/idempotency/c?path=/payments";
    assert_eq!(stage.ask(path, &asked, "").json()["state"], "absent", "nothing is stored");

    assert_replay(&pay("ann", "a"), 1);
    let other = stage.ask("POST /payments", &[asked[0], ("idempotency-key", "a")], "{}");
    assert_problem(&other, 422, "key-mismatch");
    assert_fresh(&pay("bob", "c"), 3);
    let metrics = stage.metrics();
    for line in [
        r#"idempotency_limited_total{route="default",limit="rate"} 2"#,
        r#"idempotency_requests_total{route="default",status="limited",duplicate="false"} 2"#,
    ] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
}

fn h47_five_slow_calls_of_one_caller_do_not_stop_others(place: &Place) {
    let stage = place.patient("limits.concurrent = 5\n[defaults.per_caller]\nconcurrent = 4\n");
    let mut slow = Vec::new();
    for key in ["1", "2", "3", "4"] {
        slow.push((sending(&stage, "ann", key), stage.service.next()));
    }
    assert_limited(&sending(&stage, "ann", "5").answer(), "concurrent");
    let mut other = sending(&stage, "bob", "1");
    stage.service.next().answer("201 Created", &[], b"payment 5");
    assert_fresh(&other.answer(), 5);
    for (mut call, asked) in slow {
        asked.answer("201 Created", &[], b"payment 1");
        assert_fresh(&call.answer(), 1);
    }
    let mut fifth = sending(&stage, "ann", "5");
    stage.service.next().answer("201 Created", &[], b"payment 6");
    assert_fresh(&fifth.answer(), 6);
}

fn h47_an_anonymous_caller_cannot_fill_the_store(place: &Place) {
    let stage = place.answering("[defaults.per_caller]\nstored_bytes = '50KB'\n", |_, _| {
        super::service::reply("404 Not Found", &[], &vec![b'x'; 10_000])
    });
    let answers: Vec<Message> = (0..20).map(|key| stage.pay(&key.to_string())).collect();
    let stored = answers.iter().take_while(|answer| answer.status() == 404).count();
    assert_eq!(stored, 5, "each takes a little over 10,000 bytes");
    answers[stored..].iter().for_each(|answer| assert_limited(answer, "stored_bytes"));
    let replay = stage.pay("0");
    assert_eq!((replay.status(), replay.is_replay()), (404, true));
    assert_eq!(sending(&stage, "ann", "0").answer().status(), 404, "others go on");
    assert_eq!(stage.service.calls(), 6);
}

fn h47_who_is_not_identified_is_known_by_the_address(place: &Place) {
    let stage = place.counting("[defaults.per_caller]\nrate = '1/h'\n");
    let pay_from = |last: u8, key: &str, more: &str| {
        let mut call = Call::connect_from(Ipv4Addr::new(127, 0, 0, last), stage.gateway.address);
        let head = format!("POST /payments HTTP/1.1\r\nhost: test\r\nidempotency-key: {key}\r\n");
        let length = BODY.len();
        call.write(format!("{head}{more}content-length: {length}\r\n\r\n{BODY}").as_bytes());
        call.answer()
    };
    assert_fresh(&pay_from(2, "a", ""), 1);
    // What a client says about itself is no address.
    assert_limited(&pay_from(2, "b", "x-forwarded-for: 192.0.2.1\r\n"), "rate");
    assert_limited(&pay_from(2, "b", "forwarded: for=192.0.2.1\r\ncookie: a=b\r\n"), "rate");
    assert_fresh(&pay_from(3, "b", ""), 2);
    assert_fresh(&pay_from(2, "c", "authorization: ann\r\n"), 3);
}

fn h47_a_reload_does_not_give_new_limits(place: &Place) {
    let stage = place.counting("[defaults.per_caller]\nrate = '1/h'\n");
    assert_fresh(&sending(&stage, "ann", "a").answer(), 1);
    stage.gateway.signal(Signal::SIGHUP);
    stage.gateway.log_line("new routes are in force");
    assert_limited(&sending(&stage, "ann", "b").answer(), "rate");
}
