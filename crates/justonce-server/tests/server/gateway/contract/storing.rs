//! Which answers are stored: h26.

use super::every::on_every_store;
use super::place::Place;
use super::service::reply;
use super::stage::Stage;
use crate::gateway::stage::BODY;

on_every_store! {
    h26_statuses_are_kept_released_or_unknown,
    h26_the_upstream_may_decide,
    h26_a_route_may_decide,
}

/// A gateway in front of a service that answers what the request's header `x-say` says.
fn obedient(place: &Place, more: &str) -> Stage {
    place.answering(more, |_, request| {
        let said = request.header("x-say").unwrap().to_owned();
        let mut words = said.split('|');
        let status = words.next().unwrap();
        let headers: Vec<_> = words.filter_map(|line| line.split_once('=')).collect();
        reply(status, &headers, b"")
    })
}

/// What becomes of an operation that is answered like this. The answer reaches its caller.
fn after(stage: &Stage, path: &str, said: &str) -> String {
    let key = format!("k{}", stage.service.calls());
    let headers = [("idempotency-key", key.as_str()), ("x-say", said)];
    let request = format!("POST {path}");
    let first = stage.ask(&request, &headers, BODY);
    assert_eq!(first.start, format!("HTTP/1.1 {}", said.split('|').next().unwrap()));
    assert_eq!(first.header("idempotency-outcome"), None, "it is between the service and us");
    let state = stage.state_at(path, &key);
    let calls = stage.service.calls();
    let second = stage.ask(&request, &headers, BODY);
    let again = match state.as_str() {
        "completed" => {
            assert_eq!((&second.start, second.is_replay()), (&first.start, true));
            0
        }
        "unknown" => {
            assert_eq!(second.code(), "outcome-unknown");
            0
        }
        _ => 1,
    };
    assert_eq!(stage.service.calls() - calls, again, "{said}");
    state
}

fn h26_statuses_are_kept_released_or_unknown(place: &Place) {
    let stage = obedient(place, "breaker.enabled = false\n");
    let kept = ["200 OK", "204 No Content", "302 Found", "404 Not Found", "409 Conflict"];
    let also =
        ["422 Unprocessable Entity", "501 Not Implemented", "505 HTTP Version Not Supported"];
    for status in kept.into_iter().chain(also) {
        assert_eq!(after(&stage, "/payments", status), "completed", "{status}");
    }
    for status in [
        "401 Unauthorized",
        "403 Forbidden",
        "407 Proxy Authentication Required",
        "408 Request Timeout",
        "421 Misdirected Request",
        "425 Too Early",
        "429 Too Many Requests",
        "503 Service Unavailable|retry-after=1",
    ] {
        assert_eq!(after(&stage, "/payments", status), "absent", "{status}");
    }
    for status in ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable"] {
        assert_eq!(after(&stage, "/payments", status), "unknown", "{status}");
    }
}

fn h26_the_upstream_may_decide(place: &Place) {
    let stage = obedient(place, "breaker.enabled = false\n");
    for (said, state) in [
        ("500 Internal Server Error|idempotency-outcome=final", "completed"),
        ("429 Too Many Requests|idempotency-outcome=final", "completed"),
        ("201 Created|idempotency-outcome=retryable", "absent"),
        ("500 Internal Server Error|idempotency-outcome=retryable", "absent"),
        ("200 OK|idempotency-outcome=unknown", "unknown"),
        ("201 Created|idempotency-outcome=whatever", "unknown"),
        ("201 Created|idempotency-outcome=retryable|idempotency-outcome=final", "unknown"),
    ] {
        assert_eq!(after(&stage, "/payments", said), state, "{said}");
    }
}

fn h26_a_route_may_decide(place: &Place) {
    let routes = ["keep", "release", "unknown"].map(|rule| {
        let rules = format!("{{ '5xx' = '{rule}', '404' = '{rule}' }}");
        format!("[[route]]\nmatch = 'POST /{rule}'\nstore_status = {rules}\n")
    });
    let stage = obedient(place, &format!("breaker.enabled = false\n{}", routes.concat()));
    let states = [("/keep", "completed"), ("/release", "absent"), ("/unknown", "unknown")];
    for (path, state) in states {
        for status in ["500 Internal Server Error", "404 Not Found"] {
            assert_eq!(after(&stage, path, status), state, "{status} at {path}");
        }
    }
}
