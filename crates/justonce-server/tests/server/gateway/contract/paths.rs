//! Which requests a route is for, however they are written: h44 and h45.

use super::http2;
use super::place::Place;
use super::stage::{Stage, assert_fresh, assert_problem, assert_replay};
use crate::gateway::stage::BODY;
use crate::support::client::Call;
use crate::support::upstream::Message;

const REQUIRED: &str = "[[route]]\nmatch = 'POST /payments'\nkey = 'required'\n";
const KEY: (&str, &str) = ("idempotency-key", "abc");

fn post(stage: &Stage, target: &str) -> Message {
    stage.ask(&format!("POST {target}"), &[KEY], BODY)
}

#[test]
fn h44_an_upgrade_on_a_protected_method_changes_nothing_about_protection() {
    let stage = Place::embedded().counting(REQUIRED);
    for protocol in ["x", "websocket", "h2c"] {
        let upgrade = [("connection", "upgrade, http2-settings"), ("upgrade", protocol)];
        let bare = stage.ask("POST /payments", &upgrade, BODY);
        assert_problem(&bare, 400, "key-missing");
        let answer = stage.ask("POST /payments", &[&upgrade[..], &[KEY]].concat(), BODY);
        assert_eq!(answer.text(), "payment 1", "{protocol}");
    }
    let heard = stage.service.heard(1);
    assert_eq!((heard.header("upgrade"), heard.header("connection")), (None, None));
    // A route without protection is no way out of HTTP either.
    let upgrade = [("connection", "upgrade"), ("upgrade", "x")];
    stage.ask("PUT /other", &upgrade, BODY);
    assert_eq!(stage.service.heard(2).header("upgrade"), None);
    assert_eq!(stage.service.calls(), 2);
}

#[test]
fn h44_the_body_behind_an_upgrade_is_read_as_strictly_as_any_other() {
    let stage = Place::embedded().counting("");
    let mut call = Call::connect(stage.gateway.address);
    // A bare line feed behind the size of a chunk.
    call.write(
        b"POST /payments HTTP/1.1\r\nhost: test\r\nidempotency-key: abc\r\nconnection: upgrade\r\n\
          upgrade: x\r\ntransfer-encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
    );
    assert!(call.try_answer().is_none_or(|answer| answer.status() == 400));
    assert_eq!(stage.service.calls(), 0);
}

#[test]
fn h45_one_key_on_two_spellings_of_one_path_is_one_operation() {
    let stage = Place::embedded().counting(REQUIRED);
    assert_fresh(&post(&stage, "/payments"), 1);
    for target in [
        "/payments/",
        "//payments",
        "/./payments",
        "/payments/.",
        "/x/../payments",
        "/x/%2e%2e/payments",
        "/p%61yments",
        "http://test/payments",
        "http://test//payments/",
    ] {
        assert_replay(&post(&stage, target), 1);
        let bare = stage.ask(&format!("POST {target}"), &[], BODY);
        assert_problem(&bare, 400, "key-missing");
        if target.starts_with('/') {
            let answer = http2::post(stage.gateway.address, target, &[KEY], BODY);
            assert_eq!((answer.text().as_str(), answer.is_replay()), ("payment 1", true));
            let bare = http2::post(stage.gateway.address, target, &[], BODY);
            assert_eq!(bare.code(), "key-missing", "{target}");
        }
    }
    assert_eq!(stage.service.calls(), 1);
}

#[test]
fn h45_the_service_gets_the_path_that_was_matched() {
    let stage = Place::embedded().counting(REQUIRED);
    for (sent, heard) in [
        ("POST /x/../orders?a=/../b", "POST /orders?a=/../b HTTP/1.1"),
        ("POST //a//b//", "POST /a/b/ HTTP/1.1"),
        ("DELETE /payments/../b", "DELETE /b HTTP/1.1"),
        ("GET //a/../b", "GET //a/../b HTTP/1.1"),
    ] {
        stage.ask(sent, &[], "");
        assert_eq!(stage.service.heard(stage.service.calls()).start, heard, "{sent}");
    }
}

#[test]
fn h45_what_two_readers_read_differently_is_refused_unless_a_route_allows_it() {
    let stage = Place::embedded().counting(&format!(
        "{REQUIRED}[[route]]\nmatch = 'POST /files/*'\npath_escapes = 'allow'\n"
    ));
    for target in ["/payments%2f", "/payments%5c", "/a\\b", "/payments%00", "/x%2f..%2Fpayments"] {
        assert_problem(&post(&stage, target), 400, "request-invalid");
    }
    assert_eq!(post(&stage, "payments").status(), 400);
    let answer = http2::post(stage.gateway.address, "/payments%2F", &[KEY], BODY);
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "request-invalid"));
    assert_eq!(stage.service.calls(), 0);
    assert_fresh(&post(&stage, "/files/a%2fb"), 1);
    assert_replay(&post(&stage, "/files//a%2Fb"), 1);
    assert_eq!(stage.service.heard(1).start, "POST /files/a%2Fb HTTP/1.1");
}
