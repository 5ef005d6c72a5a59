//! Web pages of other origins: h56.

use super::every::on_every_store;
use super::http2;
use super::place::Place;
use super::stage::{assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::upstream::Message;

on_every_store! {
    h56_problems_and_replays_can_be_read_by_the_pages_that_may,
    h56_preflights_are_answered_by_the_service_or_by_the_gateway,
}

const SHOP: &str = "https://shop.example.com";
const OFFICE: &str = "http://localhost:5173";
const STRANGER: &str = "https://stranger.example.com";
const PAGES: &str = "[defaults.cors]\n\
    origins = ['https://Shop.example.com:443', 'http://localhost:5173']\ncredentials = true\n";
const EXPOSED: [&str; 4] =
    ["idempotent-replayed", "idempotency-status", "idempotency-key-lifetime", "retry-after"];

/// A page of this origin may read the answer, with its cookies.
#[track_caller]
fn assert_readable(answer: &Message, origin: &str) {
    assert_eq!(answer.all("access-control-allow-origin"), [origin], "{answer:?}");
    assert_eq!(answer.all("access-control-allow-credentials"), ["true"], "{answer:?}");
    assert_eq!(answer.all("vary"), ["origin"], "{answer:?}");
    let exposed = answer.all("access-control-expose-headers").join(", ");
    assert!(EXPOSED.iter().all(|name| exposed.contains(name)), "{answer:?}");
}

fn h56_problems_and_replays_can_be_read_by_the_pages_that_may(place: &Place) {
    let stage = place.patient(PAGES);
    let sending = |origin, key, body| {
        stage.sending("POST /payments", &[("origin", origin), ("idempotency-key", key)], body)
    };
    let mut running = sending(SHOP, "abc", BODY);
    let asked = stage.service.next();
    for (key, body, status, code) in [
        ("abc", BODY, 409, "in-flight"),
        ("abc", "{}", 422, "key-mismatch"),
        ("a,b", BODY, 400, "key-invalid"),
    ] {
        for origin in [SHOP, OFFICE] {
            let answer = sending(origin, key, body).answer();
            assert_problem(&answer, status, code);
            assert_readable(&answer, origin);
        }
        let answer = sending(STRANGER, key, body).answer();
        assert_problem(&answer, status, code);
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    asked.answer("201 Created", &[("access-control-allow-origin", SHOP)], b"payment 1");
    let first = running.answer();
    assert_fresh(&first, 1);
    assert_eq!(first.all("access-control-allow-origin"), [SHOP], "the service says it itself");

    let replay = sending(OFFICE, "abc", BODY).answer();
    assert_replay(&replay, 1);
    assert_readable(&replay, OFFICE);
    let headers = [("origin", OFFICE), ("idempotency-key", "abc")];
    let replay = http2::post(stage.gateway.address, "/payments", &headers, BODY);
    assert!(replay.is_replay());
    assert_eq!(replay.headers["access-control-allow-origin"], OFFICE);
    let replay = sending(STRANGER, "abc", BODY).answer();
    assert_replay(&replay, 1);
    assert_eq!(replay.header("access-control-allow-origin"), None);

    let mut failing = sending(SHOP, "broken", BODY);
    stage.service.next().hang_up();
    let answer = failing.answer();
    assert_problem(&answer, 502, "upstream-failed");
    assert_readable(&answer, SHOP);
}

fn h56_preflights_are_answered_by_the_service_or_by_the_gateway(place: &Place) {
    let stage = place.counting(&format!(
        "{PAGES}[[route]]\nmatch = 'POST /ours'\n\
         cors = {{ preflight = 'answer', headers = ['x-trace'], max_age = '1h' }}\n"
    ));
    let ask = |path: &str, origin| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        stage.ask(&format!("OPTIONS {path}"), &headers, "")
    };
    assert_fresh(&ask("/payments", SHOP), 1);
    assert_eq!(stage.service.heard(1).start, "OPTIONS /payments HTTP/1.1");

    let answer = ask("/ours", OFFICE);
    assert_eq!((answer.status(), answer.text().as_str()), (204, ""));
    assert_eq!(answer.header("access-control-allow-origin"), Some(OFFICE));
    assert_eq!(answer.header("access-control-allow-methods"), Some("POST"));
    assert_eq!(answer.header("access-control-max-age"), Some("3600"));
    let headers = answer.header("access-control-allow-headers").unwrap();
    for name in ["idempotency-key", "authorization", "content-type", "x-trace"] {
        assert!(headers.contains(name), "{headers}");
    }
    let answer = ask("/ours", STRANGER);
    assert_eq!((answer.status(), answer.header("access-control-allow-origin")), (204, None));
    assert_eq!((stage.service.calls(), stage.steps()), (1, 0));
}
