//! Which responses are stored: h26.

use axum::body::Body;
use http::Response;
use justonce_core::StateName;
use justonce_http::{ResponseEffect, Rule, StatusRules};

use crate::support::upstream::{Upstream, status};
use crate::support::world::{World, payment, send};

/// The state that an answer leaves behind. The answer always reaches its caller as it is.
async fn after(
    rule: Rule,
    answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> StateName {
    let world = World::new();
    let code = answer().status();
    let upstream = Upstream::answering(answer);
    let app = world.app_with(&upstream, rule);
    let first = send(&app, payment("abc")).await;
    assert_eq!((first.status, first.is_replay()), (code, false));
    assert_eq!(first.header("idempotency-outcome"), None, "it is between the service and us");
    let second = send(&app, payment("abc")).await;
    let executions = match world.state().await {
        StateName::Completed => {
            assert_eq!((second.status, second.is_replay()), (code, true));
            1
        }
        StateName::Unknown => {
            assert_eq!(second.problem().as_deref(), Some("outcome-unknown"));
            1
        }
        StateName::Absent => 2,
        other => panic!("{other:?}"),
    };
    assert_eq!(upstream.calls(), executions, "{code}");
    world.state().await
}

#[tokio::test]
async fn h26_2xx_3xx_and_deterministic_4xx_are_stored() {
    for code in [200, 201, 202, 204, 206, 301, 303, 304, 307, 400, 402, 404, 405, 409, 410, 411] {
        assert_eq!(after(Rule::default(), move || status(code)).await, StateName::Completed);
    }
    for code in [412, 413, 415, 418, 422, 424, 426, 428, 431, 451, 499] {
        assert_eq!(after(Rule::default(), move || status(code)).await, StateName::Completed);
    }
}

#[tokio::test]
async fn h26_not_you_and_not_now_free_the_key() {
    for code in [401, 403, 407, 408, 421, 425, 429] {
        assert_eq!(after(Rule::default(), move || status(code)).await, StateName::Absent, "{code}");
    }
    let later = || {
        let mut answer = status(503);
        answer.headers_mut().insert("retry-after", "5".parse().unwrap());
        answer
    };
    assert_eq!(after(Rule::default(), later).await, StateName::Absent);
}

#[tokio::test]
async fn h26_5xx_is_unknown_unless_the_route_says_otherwise() {
    for code in [500, 502, 503, 504, 507, 599] {
        let state = after(Rule::default(), move || status(code)).await;
        assert_eq!(state, StateName::Unknown, "{code}");
    }
    // These say "never", whatever the state.
    for code in [501, 505] {
        assert_eq!(after(Rule::default(), move || status(code)).await, StateName::Completed);
    }
    for (rule, state) in [
        (ResponseEffect::Final, StateName::Completed),
        (ResponseEffect::NotExecuted, StateName::Absent),
        (ResponseEffect::Unknown, StateName::Unknown),
    ] {
        let class = Rule::default().statuses(StatusRules::default().class(5, rule));
        assert_eq!(after(class, || status(500)).await, state);
        let code = StatusRules::default().class(5, ResponseEffect::Unknown).code(503, rule);
        assert_eq!(after(Rule::default().statuses(code), || status(503)).await, state);
        let code = StatusRules::default().code(404, rule);
        assert_eq!(after(Rule::default().statuses(code), || status(404)).await, state);
    }
}

fn saying(code: u16, words: &'static [&'static str]) -> impl Fn() -> Response<Body> {
    move || {
        let mut answer = status(code);
        for word in words {
            answer.headers_mut().append("idempotency-outcome", word.parse().unwrap());
        }
        answer
    }
}

#[tokio::test]
async fn h26_the_service_may_decide() {
    for (code, words, state) in [
        (500, &["final"][..], StateName::Completed),
        (429, &["final"], StateName::Completed),
        (201, &["retryable"], StateName::Absent),
        (500, &["retryable"], StateName::Absent),
        (200, &["unknown"], StateName::Unknown),
        // What cannot be read is no permission to run again.
        (201, &["whatever"], StateName::Unknown),
        (201, &["retryable", "final"], StateName::Unknown),
    ] {
        assert_eq!(after(Rule::default(), saying(code, words)).await, state, "{code} {words:?}");
    }
    // What it says counts more than the route's rules.
    let rule =
        Rule::default().statuses(StatusRules::default().code(500, ResponseEffect::NotExecuted));
    assert_eq!(after(rule, saying(500, &["unknown"])).await, StateName::Unknown);
}

#[tokio::test]
async fn h26_a_service_in_the_same_process_may_decide_by_an_extension() {
    for (effect, state) in [
        (ResponseEffect::Final, StateName::Completed),
        (ResponseEffect::NotExecuted, StateName::Absent),
        (ResponseEffect::Unknown, StateName::Unknown),
    ] {
        for code in [201, 429, 500] {
            let answer = move || {
                let mut answer = status(code);
                answer.extensions_mut().insert(effect);
                answer
            };
            assert_eq!(after(Rule::default(), answer).await, state, "{code} {effect:?}");
        }
    }
}

#[tokio::test]
async fn h26_an_unprotected_answer_does_not_show_the_effect_either() {
    let (world, upstream) = (World::new(), Upstream::answering(saying(200, &["final"])));
    let app = world.app(&upstream);
    let reply = send(&app, crate::support::world::request("POST", "/a", &[], "")).await;
    assert_eq!(reply.header("idempotency-outcome"), None);
}
