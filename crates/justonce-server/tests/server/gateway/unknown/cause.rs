//! Why an operation is unknown is kept with its record, and the log, the command line and the
//! caller name it in one way.

use serde_json::Value;

use crate::gateway::stage::BODY;
use crate::gateway::unknown::stage::{Heard, Server, Stage};
use crate::support::client::{Call, until};

const CONFIG: &str = "[defaults]\nlease = '1s'\n[log]\nformat = 'json'\n\
                      [[route]]\nmatch = 'POST /payments'\nname = 'payments'\n";

fn answered_with_500(stage: &Stage, key: &str) -> Heard {
    let mut call = Call::pay(stage.gateway.address, key, BODY);
    let mut connection = stage.upstream.accept();
    let heard = Heard::of(&connection.read());
    connection.answer("500 Internal Server Error", &[("connection", "close")], b"{}");
    assert_eq!(call.answer().status(), 500);
    heard
}

fn broken_off_in_the_body(stage: &Stage, key: &str) -> Heard {
    let mut call = Call::pay(stage.gateway.address, key, BODY);
    let mut connection = stage.upstream.accept();
    let heard = Heard::of(&connection.read());
    connection.begin_answer("201 Created", &[], 10);
    connection.write(b"half");
    drop(connection);
    assert_eq!(call.answer().status(), 502);
    heard
}

#[test]
fn the_cause_is_kept_with_the_record_on_every_store() {
    for server in Server::all() {
        let name = server.name();
        let stage = Stage::with(&server, CONFIG);
        let upstream = format!("upstream=http://{}", stage.upstream.address());
        let answered = answered_with_500(&stage, "answered");
        let no_answer = stage.unknown("no-answer");
        let half = broken_off_in_the_body(&stage, "half");
        for (heard, words) in [
            (&answered, ["status=500", "phase=answered", &upstream]),
            (&no_answer, ["phase=waiting", "error=", &upstream]),
            (&half, ["status=201", "phase=reading_body", &upstream]),
        ] {
            let shown = stage.get(&format!("/keys/{}", heard.record)).json();
            assert_eq!(shown["unknown"]["reason"], "reported", "{name}: {shown}");
            let cause = shown["unknown"]["cause"].as_str().unwrap_or_default();
            for word in words {
                assert!(cause.contains(word), "{name}: {word} is missing in {cause:?}");
            }
            let notes = shown["timeline"].as_array().unwrap();
            assert_eq!(notes.last().unwrap()["cause"], cause, "{name}");
        }
        // A dead owner says nothing.
        let (stage, dead) = stage.killed_during("killed");
        let shown = || stage.get(&format!("/keys/{}", dead.record)).json();
        let shown = until("the lapse", shown, |shown| shown["state"] == "unknown");
        assert_eq!(shown["unknown"]["reason"], "lapsed", "{name}");
        assert_eq!(shown["unknown"]["cause"], Value::Null, "{name}");
    }
}

#[test]
fn the_log_the_command_line_and_the_caller_can_be_joined() {
    let stage = Stage::with(&Server::File, CONFIG);
    let json = |line: String| -> Value { serde_json::from_str(&line).unwrap() };
    let started = json(stage.gateway.log_line("an engine starts"));
    assert!(!started["host"].as_str().unwrap().is_empty(), "{started}");
    let mut call = Call::pay(stage.gateway.address, "secret-key", BODY);
    let mut connection = stage.upstream.accept();
    let heard = Heard::of(&connection.read());
    drop(connection);
    let answer = call.answer();
    assert_eq!(answer.status(), 502);
    let upstream = format!("http://{}", stage.upstream.address());
    assert!(!answer.text().contains(&upstream), "callers hear nothing of our inside");
    let line = json(stage.gateway.log_line("may have taken effect"));
    assert_eq!(line["record"], heard.record.as_str());
    assert_eq!(line["instance"], answer.json()["instance"]);
    assert_eq!((&line["route"], &line["upstream"]), (&"payments".into(), &upstream.into()));
    assert_eq!(line["owner"], started["owner"]);
    assert!(line["key"].as_str().unwrap().starts_with("Key(#"), "{line}");
    assert!(line["duration_ms"].is_u64(), "{line}");
    assert!(line["cause"].as_str().unwrap().contains("phase=waiting"), "{line}");
    // A duplicate has a case of its own, of the same record.
    let again = stage.pay("secret-key");
    assert_eq!(again.code(), "outcome-unknown");
    let line = json(stage.gateway.log_line("\"outcome\":\"unknown\""));
    assert_eq!(line["record"], heard.record.as_str());
    assert_eq!(line["instance"], again.json()["instance"]);
}
