//! Duplicates of a running operation: h15 to h17.

use super::every::{on_every_store, on_shared_stores};
use super::place::Place;
use super::service::counted;
use super::stage::{assert_fresh, assert_problem, assert_replay, until_waiters};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay};

on_every_store! {
    h15_of_many_concurrent_duplicates_one_reaches_the_upstream,
    h16_a_duplicate_learns_how_long_the_lease_lasts,
    h16_waiters_get_the_outcome_as_soon_as_it_is_stored,
    h16_at_the_deadline_a_waiter_gets_409,
    h16_waiters_are_bounded,
    h16_a_waiter_executes_what_the_first_gave_back,
    h17_a_duplicate_of_a_completed_operation_replays,
}

on_shared_stores! {
    h15_over_two_gateways_one_reaches_the_upstream,
    h16_waiters_at_another_gateway_get_the_outcome,
    h17_another_gateway_replays,
}

const PATIENT: (&str, &str) = ("prefer", "wait=25");

/// So many identical payments at once, over all these gateways; half of them wait.
fn crowd(gateways: &[std::net::SocketAddr], key: &str, count: usize) -> Vec<Call> {
    let one = |number: usize| {
        let headers = [("idempotency-key", key), PATIENT];
        let headers = &headers[..1 + number % 2];
        Call::send(gateways[number / 2 % gateways.len()], "POST /payments", headers, BODY)
    };
    (0..count).map(one).collect()
}

/// Of these, one was executed; those who waited got the outcome, and the others that or 409.
fn assert_one_of(mut calls: Vec<Call>, what: &str) {
    let mut fresh = 0;
    for (number, call) in calls.iter_mut().enumerate() {
        let answer = call.answer();
        match answer.status() {
            201 => fresh += usize::from(!answer.is_replay()),
            _ if number % 2 == 0 => assert_problem(&answer, 409, "in-flight"),
            _ => panic!("a waiter got {answer:?}"),
        }
    }
    assert_eq!(fresh, 1, "of {} {what}", calls.len());
}

fn h15_of_many_concurrent_duplicates_one_reaches_the_upstream(place: &Place) {
    let stage = place.patient("");
    for (round, count) in [2, 50, 1000].into_iter().enumerate() {
        let calls = crowd(&[stage.gateway.address], &format!("k{count}"), count);
        stage.service.next().answer("201 Created", &[], b"paid");
        assert_one_of(calls, "at one gateway");
        assert_eq!(stage.service.calls(), round + 1, "of {count}");
    }
}

fn h15_over_two_gateways_one_reaches_the_upstream(place: &Place) {
    let stage = place.patient("");
    let second = place.second(&stage);
    let gateways = [stage.gateway.address, second.address];
    for (round, count) in [2, 50, 400].into_iter().enumerate() {
        let calls = crowd(&gateways, &format!("k{count}"), count);
        stage.service.next().answer("201 Created", &[], b"paid");
        assert_one_of(calls, "at two gateways");
        assert_eq!(stage.service.calls(), round + 1, "of {count}");
    }
}

fn h16_a_duplicate_learns_how_long_the_lease_lasts(place: &Place) {
    let stage = place.patient("[defaults]\nlease = '40s'\n");
    let mut first = stage.paying("abc");
    let asked = stage.service.next();
    let answer = stage.pay("abc");
    assert_problem(&answer, 409, "in-flight");
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((20..=40).contains(&seconds), "{seconds}");
    assert_eq!(answer.json()["retryable"], true);
    asked.answer("201 Created", &[], b"paid");
    assert_eq!(first.answer().status(), 201);
}

fn h16_waiters_get_the_outcome_as_soon_as_it_is_stored(place: &Place) {
    let stage = place.patient("[defaults]\non_concurrent = 'wait 25s'\n");
    let mut first = stage.paying("abc");
    let asked = stage.service.next();
    let mut waiters: Vec<Call> = (0..3).map(|_| stage.paying("abc")).collect();
    stage.until_waiters(3);
    // Who does not want to wait does not.
    let headers = [("idempotency-key", "abc"), ("prefer", "wait=0")];
    assert_problem(&stage.ask("POST /payments", &headers, BODY), 409, "in-flight");
    asked.answer("201 Created", &[], b"payment 1");
    assert_fresh(&first.answer(), 1);
    for waiter in &mut waiters {
        assert_replay(&waiter.answer(), 1);
    }
    assert_eq!(stage.service.calls(), 1);
}

fn h16_waiters_at_another_gateway_get_the_outcome(place: &Place) {
    let stage = place.patient("[defaults]\non_concurrent = 'wait 25s'\n");
    let second = place.second(&stage);
    let mut first = stage.paying("abc");
    let asked = stage.service.next();
    let mut waiters: Vec<Call> = (0..3).map(|_| Call::pay(second.address, "abc", BODY)).collect();
    until_waiters(&second, 3);
    asked.answer("201 Created", &[], b"payment 1");
    assert_fresh(&first.answer(), 1);
    for waiter in &mut waiters {
        assert_replay(&waiter.answer(), 1);
    }
    assert_eq!(stage.service.calls(), 1);
}

fn h16_at_the_deadline_a_waiter_gets_409(place: &Place) {
    let stage = place.patient(
        "[[route]]\nmatch = 'POST /short'\non_concurrent = 'wait 200ms'\n\
         [[route]]\nmatch = 'POST /bounded'\nmax_wait = '200ms'\n",
    );
    for (path, wish) in
        [("/short", None), ("/bounded", Some("wait=4000000")), ("/p", Some("wait=1"))]
    {
        let request = format!("POST {path}");
        let mut first = stage.sending(&request, &[("idempotency-key", "abc")], BODY);
        let asked = stage.service.next();
        let wish = wish.map(|wish| ("prefer", wish));
        let headers: Vec<_> = [("idempotency-key", "abc")].into_iter().chain(wish).collect();
        let answer = stage.ask(&request, &headers, BODY);
        assert_problem(&answer, 409, "in-flight");
        assert!(answer.header("retry-after").is_some());
        asked.answer("201 Created", &[], b"paid");
        assert_eq!(first.answer().status(), 201);
    }
}

fn h16_waiters_are_bounded(place: &Place) {
    let stage = place.patient("limits.waiters = 2\n[defaults]\non_concurrent = 'wait 25s'\n");
    let mut first = stage.paying("abc");
    let asked = stage.service.next();
    let mut waiters = [stage.paying("abc"), stage.paying("abc")];
    stage.until_waiters(2);
    assert_problem(&stage.pay("abc"), 409, "in-flight");
    asked.answer("201 Created", &[], b"payment 1");
    for waiter in &mut waiters {
        assert_replay(&waiter.answer(), 1);
    }
    assert_fresh(&first.answer(), 1);
}

fn h16_a_waiter_executes_what_the_first_gave_back(place: &Place) {
    let stage = place.patient("[defaults]\non_concurrent = 'wait 25s'\n");
    let mut first = stage.paying("abc");
    let asked = stage.service.next();
    let mut second = stage.paying("abc");
    stage.until_waiters(1);
    asked.answer("429 Too Many Requests", &[], b"");
    assert_eq!(first.answer().status(), 429);
    stage.service.next().answer("201 Created", &[], b"payment 2");
    assert_fresh(&second.answer(), 2);
}

fn h17_a_duplicate_of_a_completed_operation_replays(place: &Place) {
    let stage = place.counting("");
    assert_fresh(&stage.pay("abc"), 1);
    let mut duplicates: Vec<Call> = (0..50).map(|_| stage.paying("abc")).collect();
    for duplicate in &mut duplicates {
        assert_replay(&duplicate.answer(), 1);
    }
    assert_eq!(stage.service.calls(), 1);
}

fn h17_another_gateway_replays(place: &Place) {
    let stage = place.answering("", |number, _| counted(number));
    let second = place.second(&stage);
    for number in 1..=20 {
        let key = format!("k{number}");
        assert_fresh(&stage.pay(&key), number);
        // Acknowledged here, replayed there, at once.
        assert_replay(&pay(second.address, &key, BODY), number);
    }
}
