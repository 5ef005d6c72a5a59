//! Ten thousand connections on which nothing happens.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use crate::hardening::attacked::{Attacked, MEMORY_MIB, heard, seconds, statuses};
use crate::support::client::{pay, until};

const CONNECTIONS: usize = 10_000;
/// Open files beside these connections.
const OTHER_FILES: u64 = 500;

/// Raises the limit of this process, and of the gateway that it starts.
fn raise_limit() {
    let needed = CONNECTIONS as u64 + OTHER_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(
        hard >= needed,
        "{CONNECTIONS} connections need {needed} open files, and the hard limit is {hard}: raise \
         it (`ulimit -Hn {needed}` as root, or `LimitNOFILE`)"
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(needed), hard).unwrap();
}

#[test]
fn ten_thousand_idle_connections_are_nothing_special() {
    raise_limit();
    let timeouts = "[timeouts]\nheader = '10m'\nidle = '10m'\n";
    let mut attacked = Attacked::start(timeouts);
    let start = seconds();
    // Half of them send a request and stay open; the others send nothing.
    let question = b"GET /.well-known/idempotency/k?path=/payments HTTP/1.1\r\nhost: t\r\n\r\n";
    let mut connections: Vec<TcpStream> = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let mut stream = attacked.connect();
        if number % 2 == 0 {
            stream.write_all(question).unwrap();
        }
        connections.push(stream);
    }
    let opened = seconds() - start;
    attacked.is_well();
    let start = seconds();
    assert_eq!(pay(attacked.gateway.address, "quick", "x").status(), 201);
    let took = seconds() - start;
    let memory = attacked.gateway.resident_mib();
    println!("opened in {opened:.1} s, answered in {took:.3} s, {memory} MiB");
    assert!(took < 1.0, "{took} s");
    assert!(memory < MEMORY_MIB, "{memory} MiB");
    // They are closed when the gateway stops.
    let start = seconds();
    attacked.gateway.signal(Signal::SIGTERM);
    for (number, mut stream) in connections.into_iter().enumerate() {
        let expected: &[u16] = if number % 2 == 0 { &[200] } else { &[] };
        assert_eq!(statuses(&heard(&mut stream)), expected, "{number}");
    }
    let ended = attacked.end();
    println!("ended in {:.1} s", seconds() - start);
    assert_eq!((ended.code(), ended.signal()), (Some(0), None));
}

/// One connection more than there may be is closed at once; the others go on.
#[test]
fn more_connections_than_allowed_are_closed_at_once() {
    let mut attacked = Attacked::start("[limits]\nconnections = 50\n");
    let mut connections: Vec<TcpStream> = (0..50).map(|_| attacked.asks().unwrap()).collect();
    let mut one_more = attacked.connect();
    let _ = one_more.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(statuses(&heard(&mut one_more)), [0; 0]);
    assert_eq!(attacked.asked(), 0);
    // The others are served.
    let request = b"POST /p HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    connections[49].write_all(request).unwrap();
    assert_eq!(statuses(&heard(&mut connections[49])), [201]);
    drop(connections);
    // New ones are accepted once the gateway has noticed.
    until("room", || attacked.asks().is_some(), |answered| *answered);
    attacked.is_well();
}
