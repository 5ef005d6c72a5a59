//! Trace context (W3C): passed on, made, and named in the log.

use crate::gateway::stage::{BODY, started};
use crate::support::client::Call;
use crate::support::process::Gateway;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const JSON: &str = "log.format = 'json'\n";

fn paying(gateway: &Gateway, key: &str, headers: &[(&str, &str)]) -> Call {
    let headers = [&[("idempotency-key", key)], headers].concat();
    Call::send(gateway.address, "POST /payments", &headers, BODY)
}

#[test]
fn what_is_valid_is_passed_on_untouched_and_named() {
    let (_home, upstream, gateway) = started(JSON);
    let state = [("traceparent", PARENT), ("tracestate", "a=1 , b=2"), ("tracestate", "c=3")];
    let mut call = paying(&gateway, "k", &state);
    let mut connection = upstream.accept();
    let heard = connection.read();
    assert_eq!(heard.all("traceparent"), [PARENT]);
    assert_eq!(heard.all("tracestate"), ["a=1 , b=2", "c=3"]);
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().status(), 201);
    let line = gateway.log_line("justonce::request");
    assert!(line.contains(&format!("\"trace_id\":\"{TRACE}\"")), "{line}");
    // Requests that only pass keep theirs, too.
    let mut call = Call::send(gateway.address, "GET /payments", &state, "");
    let heard = connection.read();
    assert_eq!(heard.all("traceparent"), [PARENT]);
    connection.answer("200 OK", &[], b"");
    assert_eq!(call.answer().status(), 200);
}

#[test]
fn a_retry_in_another_trace_is_the_same_request() {
    let (_home, upstream, gateway) = started("");
    upstream.serve();
    assert!(!paying(&gateway, "k", &[("traceparent", PARENT)]).answer().is_replay());
    let other = PARENT.replace("b7ad", "aaaa").replace("0af7", "bbbb");
    assert!(paying(&gateway, "k", &[("traceparent", &other)]).answer().is_replay());
    assert!(paying(&gateway, "k", &[]).answer().is_replay());
}

#[test]
fn what_is_not_valid_is_not_passed_on() {
    let (_home, upstream, gateway) = started("");
    let mut connection = None;
    for (key, lines) in [
        ("a", &[("traceparent", "rubbish"), ("tracestate", "a=1")][..]),
        ("b", &[("traceparent", PARENT), ("traceparent", PARENT)]),
        ("c", &[("tracestate", "a=1")]),
        ("d", &[]),
    ] {
        let mut call = paying(&gateway, key, lines);
        let connection = connection.get_or_insert_with(|| upstream.accept());
        let heard = connection.read();
        assert_eq!(heard.header("traceparent"), None, "{key}");
        assert_eq!(heard.header("tracestate"), None, "{key}");
        connection.answer("201 Created", &[], b"paid");
        assert_eq!(call.answer().status(), 201);
    }
}

#[test]
fn a_trace_that_was_made_is_the_one_in_the_log() {
    let (_home, upstream, gateway) = started(&format!("{JSON}trace.make = 'sampled'\n"));
    let mut call = paying(&gateway, "k", &[]);
    let mut connection = upstream.accept();
    let parent = connection.read().header("traceparent").unwrap().to_owned();
    let parts: Vec<_> = parent.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { panic!("{parent}") };
    assert_eq!((version, trace.len(), span.len(), flags), ("00", 32, 16, "01"));
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().status(), 201);
    let line = gateway.log_line("justonce::request");
    assert!(line.contains(&format!("\"trace_id\":\"{trace}\"")), "{line}");
}

#[test]
fn an_operation_that_may_have_taken_effect_is_logged_with_its_trace() {
    let (_home, upstream, gateway) = started(JSON);
    let mut call = paying(&gateway, "k", &[("traceparent", PARENT)]);
    let mut connection = upstream.accept();
    connection.read();
    drop(connection);
    assert_eq!(call.answer().status(), 502);
    for text in ["upstream request failed", "an operation may have taken effect"] {
        // The order of the two is not fixed by anything but the code.
        let line = gateway.log_line(text);
        assert!(line.contains(&format!("\"trace_id\":\"{TRACE}\"")), "{line}");
    }
}
