//! Where requests come from and what is told about them: h49 and h54.

use axum::body::Body;
use http::Request;
use justonce_core::store::ListQuery;
use justonce_core::{OnLapsed, StoreErrorKind};
use justonce_http::{
    CallerLimits, ClientAddress, Cors, KeyPresence, Preflights, Rate, RequestReport, Rule,
    ScopePart,
};
use tokio::sync::mpsc::unbounded_channel;

use crate::logs_and_metrics::Log;
use crate::support::bodies;
use crate::support::reply::{Reply, assert_problem};
use crate::support::upstream::{Upstream, created, status};
use crate::support::world::{App, World, call, payment, request, rule, send};

/// A payment with the key `abc` from an address.
async fn pay_from(app: &App, address: Option<&str>, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[("idempotency-key", "abc")], headers].concat();
    let mut request = request("POST", "/payments", &headers, "{}");
    if let Some(address) = address {
        request.extensions_mut().insert(ClientAddress(address.parse().unwrap()));
    }
    send(app, request).await
}

fn by(parts: Vec<ScopePart>) -> Rule {
    rule(OnLapsed::Hold).scope(parts)
}

#[tokio::test]
async fn h49_the_address_can_be_the_caller() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, by(vec![ScopePart::Address]));
    let addresses = ["203.0.113.9", "203.0.113.10", "2001:db8::9"];
    for (number, address) in addresses.iter().enumerate() {
        let reply = pay_from(&app, Some(address), &[]).await;
        assert_eq!(reply.text(), format!("payment {}", number + 1), "{address}");
    }
    for same in ["203.0.113.9", "::ffff:203.0.113.9"] {
        // Whatever else the request says: cookies do not count for a caller who is known.
        let reply = pay_from(&app, Some(same), &[("cookie", same), ("authorization", same)]).await;
        assert_eq!((reply.text(), reply.is_replay()), ("payment 1", true), "{same}");
    }
    // The state is told to the same address only.
    for (address, state) in [("203.0.113.9", "completed"), ("203.0.113.77", "absent")] {
        let mut asked = request("GET", "/.well-known/idempotency/abc?path=/payments", &[], "");
        asked.extensions_mut().insert(ClientAddress(address.parse().unwrap()));
        assert_eq!(send(&app, asked).await.json()["state"], state);
    }
    // Only a hash of it is kept.
    let kept = world.engine.store().list(&ListQuery::default()).await.unwrap();
    let kept = format!("{:?}", kept.records);
    assert!(!kept.contains("203.0.113.9") && kept.contains("address_0"), "{kept}");
}

#[tokio::test]
async fn h49_a_caller_whose_address_is_not_known_shares_nothing_with_others() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let app = world.app_with(&upstream, by(vec![ScopePart::Address]));
    assert_eq!(pay_from(&app, Some("203.0.113.9"), &[]).await.text(), "payment 1");
    assert_eq!(pay_from(&app, None, &[("cookie", "s=1")]).await.text(), "payment 2");
    assert!(pay_from(&app, None, &[("cookie", "s=1")]).await.is_replay());
    assert_problem(&pay_from(&app, None, &[("cookie", "s=2")]).await, 409, "caller-differs");
}

#[tokio::test]
async fn h49_the_address_counts_beside_other_parts() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let user = ScopePart::Principal("x-user".parse().unwrap());
    let app = world.app_with(&upstream, by(vec![user, ScopePart::Address]));
    let (alice, bob) = ([("x-user", "alice")], [("x-user", "bob")]);
    assert_eq!(pay_from(&app, Some("203.0.113.9"), &alice).await.text(), "payment 1");
    assert_eq!(pay_from(&app, Some("203.0.113.9"), &bob).await.text(), "payment 2");
    assert_eq!(pay_from(&app, Some("203.0.113.10"), &alice).await.text(), "payment 3");
    assert_eq!(pay_from(&app, None, &alice).await.text(), "payment 4");
    assert!(pay_from(&app, Some("203.0.113.9"), &alice).await.is_replay());
}

/// A request with a report, and the report.
fn reported(mut request: Request<Body>) -> (Request<Body>, RequestReport) {
    let report = RequestReport::default();
    request.extensions_mut().insert(report.clone());
    (request, report)
}

#[tokio::test]
async fn h54_it_is_told_how_each_request_was_answered() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let required = Rule::default().key_presence(KeyPresence::Required);
    let app = world.app_at(&upstream, "POST /payments", required);
    let keyed = |body| request("POST", "/payments", &[("idempotency-key", "abc")], body);
    for (number, (request, expected)) in [
        (keyed("{}"), (Some("the-route"), "executed", Some(1))),
        (keyed("{}"), (Some("the-route"), "replayed", None)),
        (keyed("[]"), (Some("the-route"), "mismatch", None)),
        (request("POST", "/payments", &[], ""), (Some("the-route"), "refused", None)),
        (request("POST", "/other", &[], ""), (Some("default"), "unprotected", None)),
        (request("PUT", "/other", &[], ""), (None, "passed", None)),
        (request("GET", "/payments", &[], ""), (None, "passed", None)),
        (request("post", "/payments", &[], ""), (None, "refused", None)),
        (request("GET", "/.well-known/idempotency/abc", &[], ""), (None, "page", None)),
    ]
    .into_iter()
    .enumerate()
    {
        let (request, report) = reported(request);
        send(&app, request).await;
        let told = (report.route(), report.answer().unwrap_or_default(), report.attempt());
        assert_eq!(told, expected, "{number}");
        let is_known = number < 3;
        assert_eq!(report.record().is_some(), is_known, "{number}");
        let hash = report.key_hash();
        assert_eq!(hash.is_some_and(|hash| hash.starts_with('#') && hash.len() == 13), is_known);
    }
}

#[tokio::test(start_paused = true)]
async fn h54_a_refusal_names_the_operation_that_it_is_about() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let hour = std::time::Duration::from_secs(3600);
    let limits = CallerLimits::default().rate(Rate::new(1, hour));
    let app = world.app_with(&upstream, Rule::default().caller_limits(limits));
    let mut told = Vec::new();
    for key in ["a", "b"] {
        let (request, report) = reported(payment(key));
        send(&app, request).await;
        told.push((report.answer(), report.record(), report.key_hash()));
    }
    let [(first, one, first_key), (second, other, second_key)] = told.try_into().unwrap();
    assert_eq!((first, second), (Some("executed"), Some("limited")));
    assert!(one.is_some() && other.is_some() && one != other);
    assert!(first_key.is_some() && second_key.is_some() && first_key != second_key);
    // The same goes for a store that is away.
    world.probe.fail_as("begin", StoreErrorKind::Unavailable);
    let (request, report) = reported(payment("c"));
    let app = world.app(&upstream);
    assert_problem(&send(&app, request).await, 503, "store-unavailable");
    assert!(report.record().is_some() && report.key_hash().is_some());
}

#[tokio::test]
async fn h54_a_preflight_that_the_layer_answers_is_told() {
    let (world, upstream) = (World::new(), Upstream::counting());
    let cors = Cors::any().preflights(Preflights::Answer);
    let app = world.app_with(&upstream, Rule::default().cors(cors));
    let headers = [("origin", "https://a.example"), ("access-control-request-method", "POST")];
    let (request, report) = reported(request("OPTIONS", "/payments", &headers, ""));
    assert_eq!(send(&app, request).await.code(), 204);
    assert_eq!((report.answer(), upstream.calls()), (Some("preflight"), 0));
}

#[tokio::test]
async fn h54_the_end_of_a_stream_comes_after_what_is_told_of_it() {
    let world = World::new();
    let (feeds, mut fed) = unbounded_channel();
    let upstream = Upstream::new(move |_| {
        let (feed, body) = bodies::fed(None);
        assert!(feeds.send(feed).is_ok());
        std::future::ready(created(1).map(|_| body))
    });
    let app = world.app_with(&upstream, Rule::default());
    let (request, report) = reported(payment("abc"));
    let calling = tokio::spawn(async move { call(&app, request).await });
    let feed = fed.recv().await.unwrap();
    feed.send(bodies::data("some")).unwrap();
    let response = calling.await.unwrap();
    assert_eq!((report.route(), report.answer()), (Some("default"), None));
    drop(feed);
    let reply = Reply::of(response).await;
    assert_eq!((reply.text(), report.answer()), ("some", Some("executed")));
}

#[tokio::test]
async fn h54_lines_about_an_operation_name_its_trace() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let log = Log::default();
    let writer = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
    let _logging = tracing::subscriber::set_default(writer.finish());
    let world = World::new();
    let upstream = Upstream::answering(|| status(500));
    let app = world.app_with(&upstream, Rule::default());
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let with = |parent: &str| {
        let headers = [("idempotency-key", "abc"), ("traceparent", parent)];
        request("POST", "/payments", &headers, "{}")
    };
    send(&app, with(&parent)).await;
    let text = log.text();
    for line in ["an operation may have taken effect", "outcome=\"abandoned\""] {
        let line = text.lines().find(|text| text.contains(line)).unwrap();
        assert!(line.contains(&format!("trace_id={TRACE}")), "{line}");
    }
    send(&app, with("rubbish")).await;
    let last = log.text();
    let last = last.lines().rfind(|line| line.contains("justonce::request")).unwrap();
    assert!(!last.contains("trace_id"), "{last}");
    // It is passed on as it is, and is no part of what was asked.
    assert_eq!(upstream.heard(1).header("traceparent"), Some(&*parent));
}
