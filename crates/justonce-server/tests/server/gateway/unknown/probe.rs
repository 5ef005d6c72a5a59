//! The service is asked what became of an operation.

use super::stage::{Heard, Server, Stage};
use crate::gateway::stage::BODY;
use crate::support::client::{Call, state, until};
use crate::support::upstream::{Connection, Message};

/// A probe that asks by the record, at once and often.
const PROBE: &str = "[defaults]\nlease = '1s'\n\
    [[route]]\nmatch = 'POST /payments'\nname = 'payments'\n\
    scope = ['header:authorization', 'tenant:header:x-tenant']\n\
    [route.probe]\nrequest = 'GET /payments?key={key}&record={record}'\n\
    headers = ['x-probe: {fence}']\n\
    happened = ['200 /status=paid']\ndid_not_happen = ['404 /code=none', '200 /status=refused']\n\
    status = 201\nafter = '0s'\nrelease_after = '0s'\n\
    pause = '50ms'\npause_max = '200ms'\ntimeout = '10s'\n";

/// The next question of the gateway, and the connection to answer it.
fn question(stage: &Stage) -> (Connection, Message) {
    let mut connection = stage.upstream.accept();
    let asked = connection.read();
    assert!(asked.start.starts_with("GET /payments?"), "{}", asked.start);
    (connection, asked)
}

/// Answers one question, on a connection of its own.
fn answer(stage: &Stage, status: &str, body: &str) -> Message {
    let (mut connection, asked) = question(stage);
    connection.answer(status, &[("connection", "close"), ("x-kept", "1")], body.as_bytes());
    asked
}

#[test]
fn what_happened_is_replayed_on_every_store() {
    for server in Server::all() {
        let stage = Stage::with(&server, PROBE);
        let heard = stage.unknown("a/b?c=1&d#..%2e");
        let asked = answer(&stage, "200 OK", r#"{"status":"paid","id":9}"#);
        let target = format!("/payments?key=a%2Fb%3Fc%3D1%26d%23..%252e&record={}", heard.record);
        assert_eq!(asked.start, format!("GET {target} HTTP/1.1"));
        assert_eq!(asked.header("x-probe"), Some(&*heard.fence.to_string()));
        let replay =
            until("the replay", || stage.pay("a/b?c=1&d#..%2e"), |answer| answer.status() != 409);
        assert_eq!((replay.status(), replay.is_replay()), (201, true), "{replay:?}");
        assert_eq!(replay.text(), r#"{"status":"paid","id":9}"#);
        assert_eq!(replay.header("x-kept"), Some("1"));
        let why = "GET /payments?key={key}&record={record} was answered with 200";
        assert_eq!(stage.resolutions(&heard), [format!("probe payments completed: {why}")]);
    }
}

#[test]
fn what_did_not_happen_is_executed_by_the_next_request() {
    let stage = Stage::with(&Server::File, PROBE);
    let heard = stage.unknown("k");
    answer(&stage, "404 Not Found", r#"{"code":"none"}"#);
    until("the release", || state(stage.gateway.address, "k"), |state| state == "released");
    let mut call = Call::pay(stage.gateway.address, "k", BODY);
    let mut connection = stage.upstream.accept();
    assert!(Heard::of(&connection.read()).fence > heard.fence);
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
}

#[test]
fn what_is_not_there_yet_may_still_come() {
    let patient = PROBE.replace("release_after = '0s'", "release_after = '1h'");
    let stage = Stage::with(&Server::File, &patient);
    let heard = stage.unknown("k");
    answer(&stage, "404 Not Found", r#"{"code":"none"}"#);
    answer(&stage, "200 OK", r#"{"status":"refused"}"#);
    let (mut connection, _) = question(&stage);
    let early = r#"idempotency_probes_total{route="payments",result="too_early"} 2"#;
    assert!(stage.get("/metrics").text().contains(early));
    assert!(stage.resolutions(&heard).is_empty(), "its request may be on its way");
    connection.answer("200 OK", &[("connection", "close")], br#"{"status":"paid"}"#);
    until("the replay", || stage.pay("k"), |answer| answer.status() == 201);
}

#[test]
fn whatever_is_unclear_is_asked_again() {
    let stage = Stage::with(&Server::File, PROBE);
    let heard = stage.unknown("k");
    for (status, body) in [
        ("500 Internal Server Error", r#"{"status":"paid"}"#),
        ("404 Not Found", "no such page"),
        ("200 OK", r#"{"status":"pending"}"#),
        ("200 OK", r#"{"status":"paid""#),
        ("302 Found", ""),
        ("503 Service Unavailable", ""),
    ] {
        answer(&stage, status, body);
    }
    // Half an answer, and none at all.
    let (mut connection, _) = question(&stage);
    connection.begin_answer("200 OK", &[], 100);
    connection.write(br#"{"status":"paid"}"#);
    drop(connection);
    drop(question(&stage));
    let (mut connection, _) = question(&stage);
    assert_eq!(state(stage.gateway.address, "k"), "unknown");
    assert_eq!(stage.pay("k").code(), "outcome-unknown", "and nothing is executed meanwhile");
    assert!(stage.resolutions(&heard).is_empty());
    connection.answer("200 OK", &[("connection", "close")], br#"{"status":"paid"}"#);
    until("the replay", || stage.pay("k"), |answer| answer.status() == 201);
    // Counted once it is resolved, so perhaps a moment after the first replay.
    let lines = [
        r#"idempotency_probes_total{route="payments",result="completed"} 1"#,
        r#"idempotency_resolutions_total{by="probe",result="completed"} 1"#,
        r#"idempotency_resolutions_total{by="operator",result="completed"} 0"#,
    ];
    let counted = |metrics: &String| lines.iter().all(|line| metrics.contains(line));
    until("the counters", || stage.get("/metrics").text(), counted);
}

#[test]
fn a_gateway_killed_between_answer_and_resolution_asks_again() {
    let stage = Stage::with(&Server::File, PROBE);
    let heard = stage.unknown("k");
    let (connection, _) = question(&stage);
    let Stage { home, upstream, gateway } = stage;
    gateway.kill();
    drop(connection);
    let stage = Stage { gateway: home.start(), home, upstream };
    assert_eq!(state(stage.gateway.address, "k"), "unknown");
    answer(&stage, "200 OK", r#"{"status":"paid"}"#);
    until("the replay", || stage.pay("k"), |answer| answer.status() == 201);
    assert_eq!(stage.resolutions(&heard).len(), 1);
}

#[test]
fn an_operator_who_is_faster_than_the_probe_counts_on_every_store() {
    for server in Server::all() {
        let stage = Stage::with(&server, PROBE);
        let heard = stage.unknown("k");
        let (mut connection, _) = question(&stage);
        assert_eq!(stage.complete(&heard, "ann", "by ann").status(), 200);
        connection.answer("200 OK", &[("connection", "close")], br#"{"status":"paid"}"#);
        let late = r#"idempotency_probes_total{route="payments",result="late"} 1"#;
        until("the late probe", || stage.get("/metrics").text(), |text| text.contains(late));
        assert_eq!(stage.pay("k").text(), "by ann", "{}", server.name());
        let told = ["operator ann completed: it is in the books"];
        assert_eq!(stage.resolutions(&heard), told, "{}", server.name());
    }
}

#[test]
fn two_gateways_resolve_once_and_neither_asks_about_other_routes() {
    let server = Server::all().into_iter().nth(1).unwrap();
    let other = "[[route]]\nmatch = 'POST /orders'\nname = 'orders'\n";
    let one = Stage::with(&server, &format!("{PROBE}{other}"));
    let second = one.home.start();
    let mut order =
        Call::send(one.gateway.address, "POST /orders", &[("idempotency-key", "order")], BODY);
    let mut connection = one.upstream.accept();
    let ordered = Heard::of(&connection.read());
    drop(connection);
    assert_eq!(order.answer().status(), 502);
    let heard = one.unknown("k");
    let (mut first, asked) = question(&one);
    let (mut other, also) = question(&one);
    assert_eq!(asked.start, also.start, "both ask, which harms nobody");
    for connection in [&mut first, &mut other] {
        connection.answer("200 OK", &[("connection", "close")], br#"{"status":"paid"}"#);
    }
    until("the replay", || one.pay("k"), |answer| answer.status() == 201);
    assert_eq!(crate::support::client::pay(second.address, "k", BODY).status(), 201);
    assert_eq!(one.resolutions(&heard).len(), 1);
    assert!(one.resolutions(&ordered).is_empty(), "no probe, no question");
}

#[test]
fn probes_come_and_go_with_the_routes() {
    let stage = Stage::with(&Server::File, super::stage::CONFIG);
    let heard = stage.unknown("k");
    stage.home.configure(stage.upstream.address(), PROBE);
    stage.gateway.log_line("new routes are in force");
    answer(&stage, "200 OK", r#"{"status":"refused"}"#);
    until("the release", || state(stage.gateway.address, "k"), |state| state == "released");
    assert_eq!(stage.resolutions(&heard).len(), 1);
}
