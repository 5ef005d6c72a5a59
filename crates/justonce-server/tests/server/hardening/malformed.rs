//! Requests that are none.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use crate::hardening::attacked::{Attacked, heard, statuses};
use crate::hardening::taped::Tape;
use crate::support::client::pay;
use crate::support::process::LIMIT;

/// Requests that must be refused: each with 4xx, or a closed connection, and never passed on.
const REFUSED: &[(&str, &[u8])] = &[
    ("nothing but noise", b"\x00\x01\x02\x03\xff\xfe\xfd\r\n\r\n"),
    ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello over plain TCP\r\n\r\n"),
    ("no version", b"POST /payments\r\nhost: t\r\n\r\n"),
    ("a wrong version", b"POST /payments HTTP/9.9\r\nhost: t\r\n\r\n"),
    ("a version in small letters", b"POST /payments http/1.1\r\nhost: t\r\n\r\n"),
    ("no method", b" /payments HTTP/1.1\r\nhost: t\r\n\r\n"),
    ("a method with a control character", b"PO\x01ST /payments HTTP/1.1\r\nhost: t\r\n\r\n"),
    ("a method that is no token", b"PO(ST /payments HTTP/1.1\r\nhost: t\r\n\r\n"),
    ("a space in the path", b"POST /pay ments HTTP/1.1\r\nhost: t\r\n\r\n"),
    ("a null in the path", b"POST /pay\x00ments HTTP/1.1\r\nhost: t\r\n\r\n"),
    ("a return in the path", b"POST /pay\rments HTTP/1.1\r\nhost: t\r\n\r\n"),
    ("no host", b"POST /payments HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
    ("two hosts", b"POST /payments HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"),
    ("a header without a colon", b"POST /payments HTTP/1.1\r\nhost: t\r\nrubbish\r\n\r\n"),
    ("a header without a name", b"POST /payments HTTP/1.1\r\nhost: t\r\n: x\r\n\r\n"),
    ("a space before the colon", b"POST /payments HTTP/1.1\r\nhost: t\r\nx-a : x\r\n\r\n"),
    ("a folded header", b"POST /payments HTTP/1.1\r\nhost: t\r\nx-a: x\r\n y\r\n\r\n"),
    ("a null in a header", b"POST /payments HTTP/1.1\r\nhost: t\r\nx-a: a\x00b\r\n\r\n"),
    ("a return in a header", b"POST /payments HTTP/1.1\r\nhost: t\r\nx-a: a\rb\r\n\r\n"),
    ("a name beyond ASCII", b"POST /payments HTTP/1.1\r\nhost: t\r\nx-\xc3\xa4: x\r\n\r\n"),
    ("a length that is no number", b"POST /p HTTP/1.1\r\nhost: t\r\ncontent-length: x\r\n\r\n"),
    ("a negative length", b"POST /p HTTP/1.1\r\nhost: t\r\ncontent-length: -1\r\n\r\n"),
    ("a length with a sign", b"POST /p HTTP/1.1\r\nhost: t\r\ncontent-length: +2\r\n\r\nab"),
    (
        "a length over all limits",
        b"POST /p HTTP/1.1\r\nhost: t\r\ncontent-length: 99999999999999999999999\r\n\r\n",
    ),
    ("half a preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
    ("a preface and then noise", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff"),
];

/// How a request begins after which the connection is over.
const CLOSING: &str = "POST /payments HTTP/1.1\r\nhost: t\r\nconnection: close\r\n";

#[test]
fn a_malformed_request_is_refused_or_cut_off() {
    let mut attacked = Attacked::start("");
    for (name, bytes) in REFUSED {
        let heard = attacked.shout_and_end(bytes);
        let text = String::from_utf8_lossy(&heard).into_owned();
        let refused = heard.is_empty()
            || statuses(&heard).iter().all(|status| (400..500).contains(status))
            // A connection of HTTP/2 is told good-bye in frames.
            || bytes.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM");
        assert!(refused, "{name}: {text:?}");
        assert_eq!(attacked.asked(), 0, "{name} reached the service");
    }
    attacked.is_well();
}

/// What stops in the middle of a head is cut off in silence or with an error.
#[test]
fn every_prefix_of_a_request_is_harmless() {
    let mut attacked = Attacked::start("");
    let whole = b"POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: \"k\"\r\n\
                  content-length: 4\r\n\r\nabc";
    for end in 0..=whole.len() {
        let heard = attacked.shout_and_end(&whole[..end]);
        assert!(statuses(&heard).iter().all(|status| (400..500).contains(status)), "{end}");
    }
    assert_eq!(attacked.asked(), 0);
    attacked.is_well();
}

#[test]
fn a_head_over_the_limit_is_refused() {
    let mut attacked = Attacked::start("[limits]\nheader_bytes = '16KiB'\n");
    let with_header = |value: &str| format!("{CLOSING}x-a: {value}\r\ncontent-length: 0\r\n\r\n");
    // Within the limit all is well.
    let heard = attacked.shout(with_header(&"a".repeat(10_000)).as_bytes());
    assert_eq!(statuses(&heard), [201]);
    for request in [
        with_header(&"a".repeat(20_000)),
        with_header(&"a".repeat(5_000_000)),
        format!("POST /{} HTTP/1.1\r\nhost: t\r\n\r\n", "a".repeat(100_000)),
        format!("{} / HTTP/1.1\r\nhost: t\r\n\r\n", "A".repeat(100_000)),
    ] {
        let heard = statuses(&attacked.shout(request.as_bytes()));
        assert!(matches!(heard[..], [] | [400 | 414 | 431]), "{heard:?}");
    }
    assert_eq!(attacked.asked(), 1);
    attacked.is_well();
}

#[test]
fn too_many_headers_are_refused() {
    let mut attacked = Attacked::start("");
    let with_headers = |count: usize| {
        let lines: String = (0..count).map(|number| format!("x-{number}: y\r\n")).collect();
        format!("{CLOSING}{lines}content-length: 0\r\n\r\n")
    };
    assert_eq!(statuses(&attacked.shout(with_headers(50).as_bytes())), [201]);
    for count in [101, 1000, 5000] {
        let heard = statuses(&attacked.shout(with_headers(count).as_bytes()));
        assert!(matches!(heard[..], [] | [400 | 431]), "{count}: {heard:?}");
    }
    assert_eq!(attacked.asked(), 1);
    attacked.is_well();
}

/// Bytes that are no UTF-8 where a text could be expected: refused or passed on, never a crash.
#[test]
fn invalid_utf8_is_harmless_everywhere() {
    let routes = "[[route]]\nmatch = 'POST /json'\nkey = 'json:/id'\n\
                  [[route]]\nmatch = 'POST /query'\nkey = 'query:id'\n\
                  [[route]]\nmatch = 'POST /form'\nkey = 'content'\n\
                  fingerprint = { body = 'form' }\n";
    let (_home, gateway, _tape) = Tape::behind(routes);
    let post = |path: &[u8], header: &[u8], body: &[u8]| {
        let length = format!("content-length: {}\r\n\r\n", body.len());
        let rest = b" HTTP/1.1\r\nhost: t\r\nconnection: close\r\n";
        [b"POST ", path, rest, header, length.as_bytes(), body].concat()
    };
    let requests = [
        (post(b"/payments", b"idempotency-key: \xff\xfe\r\n", b""), [400]),
        (post(b"/payments", b"idempotency-key: \"\xc3\x28\"\r\n", b""), [400]),
        (post(b"/json", b"", b"{\"id\":\"\xff\"}"), [400]),
        (post(b"/query?id=%ff%fe", b"", b""), [400]),
        (post(b"/form", b"", b"a=%ff&\xff=\xfe"), [201]),
        (post(b"/payments", b"idempotency-key: a\r\nauthorization: \xff\xfe\r\n", b"x"), [201]),
        (post(b"/payments", b"idempotency-key: b\r\nprefer: \xff\r\n", b"\xff\xfe"), [201]),
        (post(b"/payments", b"idempotency-key: c\r\nx-a: \xff\xfe\r\n", b"{\"\xff\":1}"), [201]),
    ];
    for (request, expected) in requests {
        assert_eq!(
            answers(gateway.address, &request),
            expected,
            "{}",
            String::from_utf8_lossy(&request)
        );
    }
    let status = b"GET /.well-known/idempotency/%ff%fe?path=%ff HTTP/1.1\r\nhost: t\r\n\
                   connection: close\r\n\r\n";
    assert_eq!(answers(gateway.address, status), [400]);
    assert_eq!(pay(gateway.address, "well", "x").status(), 201);
}

fn answers(address: SocketAddr, request: &[u8]) -> Vec<u16> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request).unwrap();
    statuses(&heard(&mut stream))
}
