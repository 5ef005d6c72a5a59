//! Keys that would like to be something else: lines of a head, other keys, other people's keys.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use crate::hardening::attacked::{heard, messages};
use crate::hardening::taped::Tape;
use crate::support::client::pay;
use crate::support::process::LIMIT;
use crate::support::upstream::Message;

const ROUTES: &str = "[[route]]\nmatch = 'POST /json'\nkey = 'json:/id'\n\
                      [[route]]\nmatch = 'POST /query'\nkey = 'query:id'\n";

fn send(address: SocketAddr, path: &str, header: &str, body: &str) -> Message {
    let method = if path.starts_with("/.well-known") { "GET" } else { "POST" };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{header}\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let heard = heard(&mut stream);
    messages(&heard).into_iter().next().unwrap_or_else(|| {
        panic!("no answer to {request:?}, but {:?}", String::from_utf8_lossy(&heard));
    })
}

#[test]
fn no_key_becomes_a_line_of_the_services_request() {
    let (_home, gateway, tape) = Tape::behind(ROUTES);
    let address = gateway.address;
    for escape in ["\\r\\n", "\\n", "\\r", "\\u000d\\u000a", "\\u0000", "\\t", "\\u007f"] {
        let body = format!("{{\"id\":\"a{escape}x-injected: yes\"}}");
        let answer = send(address, "/json", "", &body);
        assert_eq!((answer.status(), answer.code().as_str()), (400, "key-invalid"), "{escape}");
    }
    for escape in ["%0d%0a", "%0a", "%0D", "%00", "%09", "%c4%8d%c4%8a", "%E5%98%8A", "+"] {
        let path = format!("/query?id=a{escape}x-injected:%20yes");
        let answer = send(address, &path, "", "");
        assert_eq!((answer.status(), answer.code().as_str()), (400, "key-invalid"), "{escape}");
    }
    // Not even what is visible can leave its quotes.
    for key in ["a\\\"; x-injected", "a\\\\", "a,b"] {
        let answer = send(address, "/json", "", &format!("{{\"id\":\"{key}\"}}"));
        assert_eq!(answer.status(), 201, "{key}");
    }
    assert_eq!(tape.count("\r\nx-injected"), 0, "{}", tape.text());
    assert_eq!(tape.count("post /json"), 3);
    assert_eq!(pay(address, "well", "x").status(), 201);
    gateway.resident_mib();
}

#[test]
fn quoted_keys_with_control_characters_are_refused() {
    let (_home, gateway, tape) = Tape::behind("");
    for key in ["\"a\tb\"", "\"a\\rb\"", "\"a\\nb\"", "\"a\\u000ab\"", "\"a\x7fb\""] {
        let header = format!("idempotency-key: {key}\r\n");
        let answer = send_raw(gateway.address, header.as_bytes());
        assert_eq!(answer.map(|answer| answer.status()), Some(400), "{key:?}");
    }
    for bytes in [&b"\"a\x01b\""[..], b"\"a\x00b\"", b"\"a\rb\"", b"\"a\x1bb\""] {
        let header = [b"idempotency-key: ", bytes, b"\r\n"].concat();
        // The parser of heads may cut the line off before we see a key.
        let status = send_raw(gateway.address, &header).map(|answer| answer.status());
        assert!(matches!(status, None | Some(400)), "{bytes:?}: {status:?}");
    }
    assert_eq!(tape.count("post"), 0);
    assert_eq!(pay(gateway.address, "well", "x").status(), 201);
}

fn send_raw(address: SocketAddr, header: &[u8]) -> Option<Message> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let first = b"POST /payments HTTP/1.1\r\nhost: t\r\nconnection: close\r\n";
    stream.write_all(&[first, header, b"content-length: 0\r\n\r\n"].concat()).unwrap();
    messages(&heard(&mut stream)).into_iter().next()
}

#[test]
fn the_state_of_a_key_has_no_way_into_an_answers_head() {
    let (_home, gateway, tape) = Tape::behind("");
    let base = "/.well-known/idempotency";
    for path in [
        format!("{base}/a%0d%0ax-injected:%20yes?path=/payments"),
        format!("{base}/a%0ax-injected:yes%0a%0abody?path=/payments"),
        format!("{base}/%00?path=/payments"),
        format!("{base}/a?path=/payments&method=PO%0d%0aST"),
        format!("{base}/{}?path=/payments", "a".repeat(300)),
        format!("{base}/?path=/payments"),
        format!("{base}/a"),
    ] {
        let answer = send(gateway.address, &path, "", "");
        assert_eq!(answer.status(), 400, "{path}: {answer:?}");
        assert_eq!(answer.header("x-injected"), None, "{path}");
        assert!(!answer.text().contains("x-injected"), "the key is not shown: {answer:?}");
    }
    let path = format!("{base}/a?path=%0d%0ax-injected:%20yes");
    let answer = send(gateway.address, &path, "", "");
    assert_eq!((answer.status(), answer.header("x-injected")), (200, None));
    let path = format!("{base}/errors/%2e%2e/%2e%2e/etc/passwd");
    assert_eq!(send(gateway.address, &path, "", "").status(), 404);
    assert_eq!(tape.count("get"), 0, "{}", tape.text());
    assert_eq!(pay(gateway.address, "well", "x").status(), 201);
}

/// A caller cannot write another one's namespace into its own header.
#[test]
fn a_forged_scope_meets_nobody_elses_key() {
    let scope = "[defaults]\nscope = ['header:authorization', 'tenant:header:x-tenant']\n";
    let (_home, gateway, tape) = Tape::behind(scope);
    let as_caller = |lines: &str| {
        let header = format!("idempotency-key: k\r\n{lines}");
        send(gateway.address, "/payments", &header, "x")
    };
    let victim = "authorization: Bearer a\r\nx-tenant: shop\r\n";
    assert_eq!(as_caller(victim).status(), 201);
    let forged = [
        "authorization: Bearer a\r\n",
        "x-tenant: shop\r\n",
        "",
        "authorization: Bearer a\r\nauthorization: Bearer a\r\nx-tenant: shop\r\n",
        "authorization: Bearer a, shop\r\n",
        "authorization: shop\r\nx-tenant: Bearer a\r\n",
        "authorization: bearer A\r\nx-tenant: shop\r\n",
        "authorization: Bearers a\r\nx-tenant: shop\r\n",
    ];
    for (number, lines) in forged.iter().enumerate() {
        let answer = as_caller(lines);
        assert_eq!(answer.header("idempotent-replayed"), None, "{lines}: {answer:?}");
        assert_eq!(tape.count("post /payments"), number + 2, "{lines}");
    }
    // The same credentials in another spelling are the same caller.
    for own in [victim, "authorization: bearer  a\r\nx-tenant: shop\r\n"] {
        assert_eq!(as_caller(own).header("idempotent-replayed"), Some("true"), "{own}");
    }
}
