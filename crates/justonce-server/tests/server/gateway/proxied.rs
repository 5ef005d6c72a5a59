//! Proxies in front of the gateway: whose word counts, and who the caller is (h49).

use std::io::Write;
use std::net::TcpStream;

use crate::gateway::contract::{Place, Stage, assert_fresh, assert_problem, assert_replay, http2};
use crate::gateway::stage::BODY;
use crate::support::client::Call;
use crate::support::upstream::Message;

/// The connections of these tests come from a trusted proxy.
const TRUSTED: &str = "[proxies]\ntrusted = ['127.0.0.0/8']\n";
/// Nobody can be told apart but by address.
const BY_ADDRESS: &str = "[defaults]\nscope = ['address']\n";

fn pay(stage: &Stage, headers: &[(&str, &str)]) -> Message {
    stage.ask("POST /payments", &[&[("idempotency-key", "abc")], headers].concat(), BODY)
}

fn pay_for(stage: &Stage, client: &str) -> Message {
    pay(stage, &[("x-forwarded-for", client)])
}

/// What must not be taken from clients.
const FORGED: [(&str, &str); 7] = [
    ("x-forwarded-for", "203.0.113.9"),
    ("x-forwarded-for", "127.0.0.1"),
    ("X_Forwarded_For", "203.0.113.9"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "other"),
    ("x-real-ip", "203.0.113.9"),
    ("forwarded", "for=203.0.113.9;proto=https;host=other"),
];

#[test]
fn h49_what_a_client_says_about_itself_is_replaced_in_every_request() {
    let place = Place::embedded();
    let stage = place.counting("[[route]]\nmatch = 'DELETE /free'\nkey = 'off'\n");
    pay(&stage, &FORGED);
    stage.ask("GET /payments", &FORGED, "");
    stage.ask("DELETE /free", &FORGED, "");
    let over_http2: Vec<_> = FORGED.iter().map(|(name, value)| (*name, *value)).collect();
    http2::post(stage.gateway.address, "/payments", &over_http2, BODY);
    for number in 1..=4 {
        let heard = stage.service.heard(number);
        assert_eq!(heard.all("x-forwarded-for"), ["127.0.0.1"], "{heard:?}");
        assert_eq!(heard.all("x-forwarded-proto"), ["http"], "{heard:?}");
        assert_eq!(heard.all("x-forwarded-host"), ["test"], "{heard:?}");
        assert_eq!(heard.all("forwarded"), ["for=127.0.0.1;host=test;proto=http"], "{heard:?}");
        assert_eq!(heard.header("x_forwarded_for"), None, "{heard:?}");
        assert_eq!(heard.header("x-real-ip"), None, "{heard:?}");
    }
}

#[test]
fn h49_what_a_trusted_proxy_says_is_passed_on_in_every_request() {
    let place = Place::embedded();
    let stage = place.counting(TRUSTED);
    pay(&stage, &FORGED);
    stage.ask("GET /payments", &FORGED, "");
    for number in 1..=2 {
        let heard = stage.service.heard(number);
        assert_eq!(heard.all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1, 127.0.0.1"]);
        assert_eq!(heard.all("x-forwarded-proto"), ["https"], "{heard:?}");
        assert_eq!(heard.all("x-forwarded-host"), ["other"], "{heard:?}");
        let forwarded = "for=203.0.113.9;host=other;proto=https, for=127.0.0.1, for=127.0.0.1";
        assert_eq!(heard.all("forwarded"), [forwarded]);
        assert_eq!(heard.header("x_forwarded_for"), None, "{heard:?}");
    }
}

#[test]
fn h49_the_client_behind_a_trusted_proxy_is_the_caller() {
    let place = Place::embedded();
    let stage = place.counting(&format!("{TRUSTED}{BY_ADDRESS}"));
    assert_fresh(&pay_for(&stage, "203.0.113.9"), 1);
    assert_fresh(&pay_for(&stage, "203.0.113.10"), 2);
    assert_fresh(&pay_for(&stage, "[2001:db8::9]:4711"), 3);
    // However it is written, and whatever the client says before.
    for same in ["203.0.113.9:4711", "203.0.113.10, 203.0.113.9, 127.0.0.2", "::ffff:203.0.113.9"] {
        assert_replay(&pay_for(&stage, same), 1);
    }
    assert_replay(&pay_for(&stage, "2001:db8::9"), 3);
    let path = "GET /.well-known/idempotency/abc?path=/payments";
    for (client, state) in [("203.0.113.9", "completed"), ("203.0.113.99", "absent")] {
        let told = stage.ask(path, &[("x-forwarded-for", client)], "").json();
        assert_eq!(told["state"], state, "{client}");
    }
}

#[test]
fn h49_a_client_that_a_proxy_does_not_name_is_nobody() {
    let place = Place::embedded();
    let stage = place.counting(&format!("{TRUSTED}{BY_ADDRESS}"));
    assert_fresh(&pay_for(&stage, "203.0.113.9"), 1);
    let hidden = |cookie| pay(&stage, &[("x-forwarded-for", "_hidden"), ("cookie", cookie)]);
    assert_fresh(&hidden("s=1"), 2);
    assert_replay(&hidden("s=1"), 2);
    assert_problem(&hidden("s=2"), 409, "caller-differs");
}

#[test]
fn h49_without_a_trusted_proxy_the_connection_is_the_caller() {
    let place = Place::embedded();
    let stage = place.counting(BY_ADDRESS);
    assert_fresh(&pay_for(&stage, "203.0.113.9"), 1);
    assert_replay(&pay_for(&stage, "203.0.113.10"), 1);
    let forwarded = pay(&stage, &[("forwarded", "for=203.0.113.11")]);
    assert_replay(&forwarded, 1);
}

#[test]
fn h49_the_address_counts_beside_other_parts_of_the_scope() {
    let place = Place::embedded();
    let scope = "[defaults]\nscope = ['address', 'header:x-user']\n";
    let stage = place.counting(&format!("{TRUSTED}{scope}"));
    let pay = |client, user| pay(&stage, &[("x-forwarded-for", client), ("x-user", user)]);
    assert_fresh(&pay("203.0.113.9", "alice"), 1);
    assert_fresh(&pay("203.0.113.9", "bob"), 2);
    assert_fresh(&pay("203.0.113.10", "alice"), 3);
    assert_replay(&pay("203.0.113.9", "alice"), 1);
}

#[test]
fn h49_forwarded_is_read_where_it_is_said_to_be() {
    let place = Place::embedded();
    let trusted = format!("{TRUSTED}header = 'forwarded'\n{BY_ADDRESS}");
    let stage = place.counting(&trusted);
    let pay = |forwarded, list| pay(&stage, &[("forwarded", forwarded), ("x-forwarded-for", list)]);
    assert_fresh(&pay("for=203.0.113.9;proto=https", "198.51.100.1"), 1);
    assert_replay(&pay("for=\"203.0.113.9:47\", for=127.0.0.9", "198.51.100.2"), 1);
    assert_fresh(&pay("for=203.0.113.9, for=\"[2001:db8::9]\"", "203.0.113.9"), 2);
    // A quote that the client left open makes nobody another one.
    let spoilt = pay("for=203.0.113.9, for=\", for=198.51.100.7", "203.0.113.9");
    assert_fresh(&spoilt, 3);
}

/// A payment on a connection that begins with this.
fn pay_after(stage: &Stage, header: &[u8]) -> Option<Message> {
    let mut call = Call::connect(stage.gateway.address);
    let length = BODY.len();
    let head = format!(
        "POST /payments HTTP/1.1\r\nhost: test\r\nidempotency-key: abc\r\n\
         x-forwarded-for: 198.51.100.7\r\ncontent-length: {length}\r\n\r\n{BODY}"
    );
    call.write(&[header, head.as_bytes()].concat());
    call.try_answer()
}

fn v2(source: [u8; 4]) -> Vec<u8> {
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c";
    [&start[..], &source, &[10, 0, 0, 1, 0x12, 0x34, 0, 80]].concat()
}

#[test]
fn h49_connections_say_whose_they_are() {
    let place = Place::embedded();
    let stage = place.counting(&format!("{TRUSTED}proxy_protocol = true\n{BY_ADDRESS}"));
    let line = |client: &str| format!("PROXY TCP4 {client} 10.0.0.1 4660 80\r\n").into_bytes();
    assert_fresh(&pay_after(&stage, &line("203.0.113.9")).unwrap(), 1);
    assert_fresh(&pay_after(&stage, &line("203.0.113.10")).unwrap(), 2);
    assert_replay(&pay_after(&stage, &v2([203, 0, 113, 9])).unwrap(), 1);
    assert_eq!(stage.service.heard(1).all("x-forwarded-for"), ["203.0.113.9"]);
    // The proxy's own connection may name a client, as it is trusted.
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
    assert_fresh(&pay_after(&stage, local).unwrap(), 3);
    assert_eq!(stage.service.heard(3).all("x-forwarded-for"), ["198.51.100.7, 127.0.0.1"]);
}

#[test]
fn h49_a_connection_that_does_not_say_whose_it_is_is_closed_and_logged() {
    let place = Place::embedded();
    let stage = place.counting(&format!("{TRUSTED}proxy_protocol = true\n"));
    // The server may close before all of it is written.
    let mut stream = TcpStream::connect(stage.gateway.address).unwrap();
    let _ = stream.write_all(b"POST /payments HTTP/1.1\r\nhost: test\r\n\r\n");
    let line = stage.gateway.log_line("a connection was closed");
    assert!(line.contains("does not begin with") && line.contains("127.0.0.1"), "{line}");
    assert_eq!(stage.service.calls(), 0);
}

#[test]
fn h49_nobody_but_a_trusted_proxy_says_whose_a_connection_is() {
    let place = Place::embedded();
    let stage = place.counting("[proxies]\ntrusted = ['10.0.0.0/8']\nproxy_protocol = true\n");
    let mut stream = TcpStream::connect(stage.gateway.address).unwrap();
    let _ = stream.write_all(&v2([203, 0, 113, 9]));
    let line = stage.gateway.log_line("a connection was closed");
    assert!(line.contains("no trusted proxy"), "{line}");
    assert_eq!(stage.service.calls(), 0);
}
