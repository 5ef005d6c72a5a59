//! A request hidden in another: whatever the shape, the service sees no request that the gateway
//! did not see, and no key protects less than it says.

use std::io::Write;
use std::net::TcpStream;

use crate::hardening::attacked::{heard, statuses};
use crate::hardening::taped::Tape;
use crate::support::client::pay;
use crate::support::process::LIMIT;

/// The request that must not arrive as one.
const HIDDEN: &str = "POST /smuggled HTTP/1.1\r\nhost: t\r\nx-smuggled: yes\r\n\r\n";

/// Shapes that two readers understand differently. They go between the head's first lines and the
/// hidden request.
const SHAPES: &[(&str, &str)] = &[
    ("length, then coding", "content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("coding, then length", "transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\n"),
    ("two lengths", "content-length: 0\r\ncontent-length: 71\r\n\r\n"),
    ("a list of lengths", "content-length: 0, 71\r\n\r\n"),
    ("a length after a sign", "content-length: +0\r\n\r\n"),
    ("a coding that is not last", "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ("a coding that is none", "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("two codings", "transfer-encoding: chunked\r\ntransfer-encoding: x\r\n\r\n0\r\n\r\n"),
    ("a tab before the coding", "transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
    ("a space after the name", "transfer-encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("a folded coding", "transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("bare line feeds", "x-a: b\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("a chunk without a size", "transfer-encoding: chunked\r\n\r\n\r\n\r\n"),
    ("a negative chunk", "transfer-encoding: chunked\r\n\r\n-1\r\n\r\n"),
    ("a chunk with a sign", "transfer-encoding: chunked\r\n\r\n+0\r\n\r\n"),
    ("a chunk with 0x", "transfer-encoding: chunked\r\n\r\n0x0\r\n\r\n"),
    ("a chunk over 64 bits", "transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n"),
    ("a chunk that is longer", "transfer-encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"),
    ("a chunk without its end", "transfer-encoding: chunked\r\n\r\n3\r\nabc0\r\n\r\n"),
    ("a chunk with a bare line feed", "transfer-encoding: chunked\r\n\r\n0\n\r\n"),
];

/// The two ways through the gateway: with a key the body is read first, without one it streams.
const HEADS: [(&str, &str); 2] = [
    ("protected", "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: k\r\n"),
    ("unprotected", "PUT /files HTTP/1.1\r\nhost: t\r\n"),
];

#[test]
fn nothing_is_smuggled_to_the_service() {
    let (_home, gateway, tape) = Tape::behind("[timeouts]\nbody = '1s'\nheader = '1s'\n");
    for (way, head) in HEADS {
        for (name, shape) in SHAPES {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let _ = stream.write_all(format!("{head}{shape}{HIDDEN}").as_bytes());
            let answers = statuses(&heard(&mut stream));
            // The first is refused, so what follows is not a request.
            assert!(answers.iter().all(|status| *status >= 400), "{way}, {name}: {answers:?}");
            assert!(answers.len() <= 1, "{way}, {name}: {answers:?}");
            assert_eq!(tape.count("smuggled"), 0, "{way}, {name}:\n{}", tape.text());
        }
    }
    assert_eq!(pay(gateway.address, "well", "x").status(), 201);
    gateway.resident_mib();
    assert_eq!(tape.count("smuggled"), 0, "{}", tape.text());
}

/// With one meaning only, what follows the body is a request of its own, and it is one for the
/// gateway too: its key counts.
#[test]
fn what_follows_a_body_is_protected_like_any_other() {
    let (_home, gateway, tape) = Tape::behind("");
    let with = |more: &str| {
        format!(
            "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: k\r\n{more}\
             content-length: 3\r\n\r\nabc"
        )
    };
    let (one, last) = (with(""), with("connection: close\r\n"));
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(format!("{one}{one}{last}").as_bytes()).unwrap();
    assert_eq!(statuses(&heard(&mut stream)), [201, 201, 201]);
    assert_eq!(tape.count("post /payments"), 1);
}

/// Trailers are not headers: a key that comes after the body is none.
#[test]
fn trailers_never_become_headers() {
    let (_home, gateway, tape) = Tape::behind("");
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: k\r\n\
                   transfer-encoding: chunked\r\ntrailer: idempotency-fence\r\n\
                   connection: close\r\n\r\n3\r\nabc\r\n0\r\nidempotency-fence: 99\r\n\
                   content-length: 50\r\nhost: smuggled\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(statuses(&heard(&mut stream)), [201]);
    let text = tape.text().to_ascii_lowercase();
    let head = text.split("\r\n\r\n").next().unwrap();
    assert!(!head.contains("smuggled") && !head.contains("fence: 99"), "{text}");
    assert_eq!(tape.count("\r\ncontent-length: 50"), 0, "{text}");
    assert_eq!(tape.count("post /payments"), 1);
}
