//! A service that records every byte it is sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::process::{Gateway, Home};

/// The tape of a service that answers every request with 201, once it has arrived whole.
#[derive(Clone, Default)]
pub(crate) struct Tape(Arc<Mutex<Vec<u8>>>);

impl Tape {
    /// Starts the service.
    pub(crate) fn start() -> (SocketAddr, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, tape) = (listener.local_addr().unwrap(), Self::default());
        let to = tape.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let tape = to.clone();
                std::thread::spawn(move || tape.record(&stream));
            }
        });
        (address, tape)
    }

    /// A gateway in front of such a service.
    pub(crate) fn behind(more: &str) -> (Home, Gateway, Self) {
        let (address, tape) = Self::start();
        let home = Home::new();
        home.configure(address, more);
        let gateway = home.start();
        (home, gateway, tape)
    }

    fn record(&self, mut stream: &TcpStream) {
        let mut buffer = [0; 4096];
        let mut last = Vec::new();
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            self.0.lock().unwrap().extend_from_slice(&buffer[..count]);
            last.extend_from_slice(&buffer[..count]);
            while let Some(end) = end_of_request(&last) {
                last.drain(..end);
                let _ = stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok");
            }
        }
    }

    /// All bytes so far, as a text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// How often this stands in it, in any case of letters.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text().to_ascii_lowercase().matches(text).count()
    }
}

/// Where the first request ends: with its head, or with its last chunk. Bodies with a length are
/// left for the next head to begin with.
fn end_of_request(bytes: &[u8]) -> Option<usize> {
    let find = |from: usize, what: &[u8]| {
        let found = bytes.get(from..)?.windows(what.len()).position(|window| window == what)?;
        Some(from + found)
    };
    let head = find(0, b"\r\n\r\n")?;
    let chunked = bytes[..head].to_ascii_lowercase();
    if !chunked.windows(26).any(|window| window == b"transfer-encoding: chunked") {
        return Some(head + 4);
    }
    // From the line end before it on: the body may be empty.
    let last_chunk = find(head + 2, b"\r\n0\r\n")?;
    find(last_chunk + 3, b"\r\n\r\n").map(|end| end + 4)
}
