//! A store that is away or full: h35, and the full disk of h38.

use std::time::{Duration, UNIX_EPOCH};

use super::every::{on_every_store, on_shared_stores};
use super::place::{Place, Store};
use super::service::Service;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, until};
use crate::support::upstream::Message;

on_every_store! {
    h35_without_a_store_nothing_is_executed,
    h35_a_route_may_let_requests_pass,
    h35_after_the_execution_the_answer_is_delivered_and_the_key_never_freed,
}

on_shared_stores! {
    h35_everything_works_again_once_the_store_is_back,
    h35_what_could_not_be_stored_is_stored_later,
    h35_a_store_that_does_not_answer_is_away,
}

/// Nothing of what a problem says comes from our inside.
fn assert_away(answer: &Message) {
    assert_problem(answer, 503, "store-unavailable");
    assert!(answer.header("retry-after").is_some());
    assert_eq!(answer.json()["retryable"], true);
    for inside in ["redis", "Redis", "postgres", "127.0.0.1", "EFBIG", "/data"] {
        assert!(!answer.text().contains(inside), "{}", answer.text());
    }
}

fn h35_without_a_store_nothing_is_executed(place: &Place) {
    let stage = place.counting("");
    assert_fresh(&stage.pay("before"), 1);
    place.fill(&stage.gateway);
    // A write that is under way may still find room.
    let mut number = 0;
    let refused = until(
        "a full store",
        || {
            number += 1;
            stage.pay(&format!("k{number}"))
        },
        |answer| answer.status() != 201,
    );
    assert_away(&refused);
    let calls = stage.service.calls();
    assert_away(&stage.pay("k"));
    assert_eq!(stage.service.calls(), calls, "the service is not called");
    // The gateway lives, and what is stored is replayed.
    assert_eq!(Call::get(stage.gateway.admin, "/healthz").status(), 200);
    assert_replay(&stage.pay("before"), 1);
}

fn h35_a_route_may_let_requests_pass(place: &Place) {
    let stage = place.counting("[defaults]\non_store_down = 'pass'\n");
    place.fill(&stage.gateway);
    let mut number = 0;
    let passed = until(
        "a full store",
        || {
            number += 1;
            stage.pay(&format!("k{number}"))
        },
        |answer| answer.header("idempotency-status").is_some(),
    );
    assert_fresh(&passed, number);
    assert_eq!(passed.header("idempotency-status"), Some("unprotected"));
    let heard = stage.service.heard(number);
    assert_eq!((heard.text().as_str(), heard.header("idempotency-fence")), (BODY, None));
    assert_eq!(heard.header("idempotency-key"), Some(format!("k{number}").as_str()));
}

fn h35_after_the_execution_the_answer_is_delivered_and_the_key_never_freed(place: &Place) {
    let more = "[defaults]\nlease = '1s'\nresponse_timeout = '20s'\n";
    let stage = place.before(Service::patient_but_at("/probe"), more);
    let mut call = stage.paying("abc");
    let asked = stage.service.next();
    place.fill(&stage.gateway);
    // Something that is written anyway may still find room: until then nothing is proven. A probe
    // that does find room is answered at once.
    let mut probes = 0;
    until(
        "a full store",
        || {
            probes += 1;
            stage.post("/probe", &format!("probe-{probes}"), BODY)
        },
        |answer| answer.status() != 204,
    );
    let calls = stage.service.calls();
    asked.answer("201 Created", &[], b"payment 1");
    assert_fresh(&call.answer(), 1);
    assert_away(&stage.post("/probe", "probe", BODY));
    let retry = stage.pay_patiently("abc");
    assert!(
        ["in-flight", "outcome-unknown", "store-unavailable"].contains(&retry.code().as_str()),
        "{retry:?}"
    );
    assert_eq!(stage.service.calls(), calls, "nobody asks the service again");
}

fn h35_everything_works_again_once_the_store_is_back(place: &Place) {
    let stage = place.counting("");
    assert_fresh(&stage.pay("before"), 1);
    place.stop();
    assert_away(&stage.pay("meanwhile"));
    let ready = Call::get(stage.gateway.admin, "/readyz");
    assert_eq!(ready.status(), 503, "{}", ready.text());
    let question = "GET /.well-known/idempotency/meanwhile?path=/payments";
    assert_away(&stage.ask(question, &[], ""));
    assert_eq!(stage.service.calls(), 1);
    place.restart();
    until("the store", || stage.pay("meanwhile"), |answer| answer.status() == 201);
    assert_replay(&stage.pay("meanwhile"), 2);
    assert_replay(&stage.pay("before"), 1);
    assert_eq!(Call::get(stage.gateway.admin, "/readyz").status(), 200);
}

fn h35_what_could_not_be_stored_is_stored_later(place: &Place) {
    let stage = place.patient("[defaults]\nlease = '20s'\n");
    let mut call = stage.paying("abc");
    let asked = stage.service.next();
    place.stop();
    let stopped = UNIX_EPOCH.elapsed().unwrap();
    asked.answer("201 Created", &[], b"payment 1");
    assert_fresh(&call.answer(), 1);
    // `timeouts.store` is a second here.
    let waited = UNIX_EPOCH.elapsed().unwrap() - stopped;
    assert!(waited < Duration::from_secs(4), "the answer was kept back for {waited:?}");
    place.restart();
    until("the outcome", || told(&stage), |state| state == "completed");
    assert_replay(&stage.pay("abc"), 1);
    assert_eq!((stage.service.calls(), stage.count_of("release")), (1, 0));
}

/// The state of the key, or the code of the problem.
fn told(stage: &Stage) -> String {
    let answer = Call::ask(stage.gateway.address, "/.well-known/idempotency/abc?path=/payments");
    let state = answer.json()["state"].as_str().map(str::to_owned);
    state.unwrap_or_else(|| answer.code())
}

fn h35_a_store_that_does_not_answer_is_away(place: &Place) {
    // A claim that was on its way may arrive after everybody has given up, and then only its lease
    // ends it.
    let stage = place.counting("[defaults]\nlease = '2s'\non_lapsed = 'rerun'\n");
    assert_fresh(&stage.pay("before"), 1);
    place.pause();
    assert_away(&stage.pay("meanwhile"));
    assert_eq!(stage.service.calls(), 1);
    if let Store::Tiered(..) = place.store {
        // The tier in front knows what is settled.
        assert_replay(&stage.pay("before"), 1);
    }
    place.resume();
    until("the store", || stage.pay("meanwhile"), |answer| answer.status() == 201);
    assert_eq!(stage.service.calls(), 2);
}
