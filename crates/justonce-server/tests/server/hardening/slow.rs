//! Clients that take their time.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::hardening::attacked::{Attacked, heard, seconds, statuses};
use crate::support::client::Call;
use crate::support::process::LIMIT;

const SHORT: &str = "[timeouts]\nheader = '1s'\nbody = '1s'\nidle = '1s'\n";
/// How many there are of each kind.
const CROWD: usize = 100;

/// Sends a byte of a head every now and then, for as long as the connection is open.
fn drip(mut stream: TcpStream, bytes: &'static [u8]) -> f64 {
    let start = seconds();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    for byte in bytes.iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        // The pace is that of the read: it ends early when the connection does.
        match stream.read(&mut [0; 512]) {
            Ok(0) => break,
            Err(error) if crate::hardening::attacked::is_closed(&error) => break,
            _ => assert!(seconds() - start < LIMIT.as_secs_f64(), "it is still listened to"),
        }
    }
    seconds() - start
}

#[test]
fn a_head_that_drips_is_cut_off() {
    let mut attacked = Attacked::start(SHORT);
    let drippers: Vec<_> = (0..CROWD)
        .map(|number| {
            let mut stream = attacked.connect();
            if number % 2 == 0 {
                stream.write_all(b"POST /payments HTTP/1.1\r\nhost: t\r\n").unwrap();
            }
            std::thread::spawn(move || drip(stream, b"x-a: b\r\n"))
        })
        .collect();
    attacked.is_well();
    let times: Vec<f64> = drippers.into_iter().map(|dripper| dripper.join().unwrap()).collect();
    let longest = times.into_iter().fold(0.0, f64::max);
    println!("the longest head was listened to for {longest:.1} s");
    assert_eq!(attacked.asked(), 0);
    attacked.is_well();
}

/// A pause in a body ends it, on both ways through the gateway; nothing half reaches a record.
#[test]
fn h20_a_body_that_stops_is_cut_off() {
    let mut attacked = Attacked::start(SHORT);
    let heads = [
        "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: k\r\ncontent-length: 100\r\n\r\nab",
        "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: l\r\n\
         transfer-encoding: chunked\r\n\r\n5\r\nab",
        "PUT /files HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\nab",
    ];
    let mut streams: Vec<TcpStream> = (0..CROWD)
        .map(|number| {
            let mut stream = attacked.connect();
            stream.write_all(heads[number % heads.len()].as_bytes()).unwrap();
            stream
        })
        .collect();
    attacked.is_well();
    for stream in &mut streams {
        let answers = statuses(&heard(stream));
        assert!(answers.iter().all(|status| *status >= 400), "{answers:?}");
    }
    assert_eq!(attacked.asked(), 0, "the service never got a whole request");
    for key in ["k", "l"] {
        let path = format!("/.well-known/idempotency/{key}?path=/payments");
        let mut call = Call::connect(attacked.gateway.address);
        call.write(format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n").as_bytes());
        let state = call.answer().text();
        assert!(state.contains("absent"), "{state}");
    }
    attacked.is_well();
}

#[test]
fn connections_that_say_nothing_are_closed() {
    let mut attacked = Attacked::start(SHORT);
    let silent: Vec<TcpStream> = (0..CROWD).map(|_| attacked.connect()).collect();
    let used: Vec<TcpStream> = (0..CROWD)
        .map(|_| {
            let mut stream = attacked.connect();
            let path = "/.well-known/idempotency/k?path=/payments";
            stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    attacked.is_well();
    for mut stream in silent {
        assert!(statuses(&heard(&mut stream)).iter().all(|status| *status == 408));
    }
    for mut stream in used {
        assert_eq!(statuses(&heard(&mut stream)), [200]);
    }
    attacked.is_well();
}
