//! Ten thousand connections on which nothing happens.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use crate::attacked::{Attacked, MEMORY_MIB, heard, seconds, statuses};
use crate::client::{pay, until};

const CROWD: usize = 10_000;
/// What the processes need beside the crowd.
const OTHERS: u64 = 500;

/// Lets this process, and the gateway it starts, have that many connections.
fn make_room() {
    let needed = CROWD as u64 + OTHERS;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(
        hard >= needed,
        "{CROWD} connections need {needed} open files, and the hard limit is {hard}: raise it \
         (`ulimit -Hn {needed}` as root, or `LimitNOFILE`)"
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(needed), hard).unwrap();
}

#[test]
fn ten_thousand_idle_connections_are_nothing_special() {
    make_room();
    let patience = "[timeouts]\nheader = '10m'\nidle = '10m'\n";
    let mut attacked = Attacked::start(patience);
    let start = seconds();
    // Half of them have asked something and stay; the others have never said a word.
    let question = b"GET /.well-known/idempotency/k?path=/payments HTTP/1.1\r\nhost: t\r\n\r\n";
    let mut crowd: Vec<TcpStream> = Vec::with_capacity(CROWD);
    for number in 0..CROWD {
        let mut stream = attacked.connect();
        if number % 2 == 0 {
            stream.write_all(question).unwrap();
        }
        crowd.push(stream);
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
    // The end of the gateway is their end.
    let start = seconds();
    attacked.gateway.signal(Signal::SIGTERM);
    for (number, mut stream) in crowd.into_iter().enumerate() {
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
    let mut crowd: Vec<TcpStream> = (0..50).map(|_| attacked.asks().unwrap()).collect();
    let mut one_more = attacked.connect();
    let _ = one_more.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(statuses(&heard(&mut one_more)), [0; 0]);
    assert_eq!(attacked.asked(), 0);
    // Those that are in are served.
    let request = b"POST /p HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    crowd[49].write_all(request).unwrap();
    assert_eq!(statuses(&heard(&mut crowd[49])), [201]);
    drop(crowd);
    // There is room again as soon as the gateway has noticed.
    until("room", || attacked.asks().is_some(), |answered| *answered);
    attacked.is_well();
}
