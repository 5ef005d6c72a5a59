//! HTTP/2 as no client needs it: the gateway stays small, and all others are served meanwhile.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::hardening::attacked::{Attacked, seconds};
use crate::hardening::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FLOOD, GET, GET_UNKEPT, GOAWAY, HEADERS,
    MAX_PAYLOAD, PING, POST, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, field, flood, flood_of,
    frame, greeted, greeted_and_measured, greeted_with, next_frame, next_frame_of, windows,
    with_reader,
};
use crate::support::client::pay;

/// A flood of large uploads may take this much: what all bodies together may have, and what the
/// connections hold of them.
const FLOODED_MIB: u64 = 320;
/// Nobody waits longer for an answer while another one is attacking, in seconds.
const AT_ONCE: f64 = 5.0;
/// How often others ask meanwhile.
const REQUESTS: usize = 25;
const MIB: usize = 1024 * 1024;

/// Floods from a thread, as often as the gateway bears it, until it is told to stop.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Flood {
    /// Connects anew whenever it is thrown out.
    fn start(
        attacked: &Attacked,
        begin: impl Fn(SocketAddr) -> TcpStream + Send + 'static,
        mut round: impl FnMut(u32) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let (stop, gateway) = (Arc::new(AtomicBool::new(false)), attacked.gateway.address);
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::SeqCst) {
                let mut stream = begin(gateway);
                let reader = with_reader(&stream);
                flood(&mut stream, |number| {
                    if told.load(Ordering::SeqCst) { Vec::new() } else { round(number) }
                });
                let _ = stream.shutdown(std::net::Shutdown::Both);
                reader.join().unwrap();
            }
        });
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// Others are served while somebody floods: at once, by a process that does not grow.
fn others_are_served(attacked: &mut Attacked, floods: Vec<Flood>, what: &str) {
    let mut longest = 0.0_f64;
    for _ in 0..REQUESTS {
        let start = seconds();
        attacked.is_well();
        longest = longest.max(seconds() - start);
    }
    let memory = attacked.gateway.resident_mib();
    println!("{what}: others waited {longest:.3} s at most; {memory} MiB");
    assert!(longest < AT_ONCE, "{what}: {longest} s");
    floods.into_iter().for_each(Flood::end);
    attacked.is_well();
}

/// Resets that the gateway itself must send: the client asks, and then does something wrong on that
/// stream (CVE-2025-8671).
#[test]
fn resets_that_a_client_provokes_end_the_connection() {
    let mut attacked = Attacked::start("");
    let mut stream = greeted(attacked.gateway.address);
    let reader = with_reader(&stream);
    let rounds = flood(&mut stream, |number| {
        let id = number * 2 + 1;
        let asked = frame(HEADERS, END_STREAM | END_HEADERS, id, GET);
        [asked, frame(WINDOW_UPDATE, 0, id, &[0; 4])].concat()
    });
    println!("ended after {rounds} rounds; the service was asked {} times", attacked.asked());
    assert!(rounds < FLOOD, "all of them were put up with");
    reader.join().unwrap();
    attacked.is_well();
}

#[test]
fn others_are_served_while_somebody_resets_what_it_asks_for() {
    let mut attacked = Attacked::start("");
    let floods = (0..4).map(|_| {
        Flood::start(&attacked, greeted, |number| {
            let id = number * 2 + 1;
            let asked = frame(HEADERS, END_STREAM | END_HEADERS, id, GET);
            [asked, frame(RST_STREAM, 0, id, &[0, 0, 0, 8])].concat()
        })
    });
    let floods = floods.collect();
    others_are_served(&mut attacked, floods, "resets");
}

/// A head that is whole and too large: the connection goes on.
#[test]
fn a_head_with_too_many_headers_is_refused_alone() {
    let mut attacked = Attacked::start("");
    let mut stream = greeted(attacked.gateway.address);
    // 80 KB in frames as large as they may be.
    let many = field("x-filler", &"a".repeat(100)).repeat(145);
    stream.write_all(&frame(HEADERS, END_STREAM, 1, &[GET, &many].concat())).unwrap();
    for number in 0..4 {
        let flags = if number == 3 { END_HEADERS } else { 0 };
        stream.write_all(&frame(CONTINUATION, flags, 1, &many)).unwrap();
    }
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 3, GET)).unwrap();
    let mut of_first = Vec::new();
    loop {
        let (kind, of, payload) = next_frame_of(&mut stream);
        match of {
            1 => of_first.push((kind, payload)),
            3 if kind == HEADERS => break,
            _ => assert_ne!(kind, GOAWAY, "{payload:?}"),
        }
    }
    assert!(!of_first.is_empty(), "nobody told the client");
    assert_eq!(attacked.asked(), 1, "the small one alone");
    attacked.is_well();
}

/// A few bytes stand for a header of four thousand, again and again.
#[test]
fn heads_that_unpack_to_megabytes_are_not_kept() {
    let mut attacked = Attacked::start("");
    let mut stream = greeted(attacked.gateway.address);
    let reader = with_reader(&stream);
    // `x: aaa…` goes into the table: from then on its number is enough.
    let value = [b'a'; 3900];
    let length = [0x7f, 0xbd, 0x1d];
    let first = [GET_UNKEPT, b"\x40\x01x", &length, &value].concat();
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &first)).unwrap();
    // The first of the table that is not known to everybody has the number 62.
    let bomb = [GET_UNKEPT, &[0x80 | 62; MAX_PAYLOAD - 6][..]].concat();
    let rounds = flood_of(400, &mut stream, |number| {
        frame(HEADERS, END_STREAM | END_HEADERS, number * 2 + 3, &bomb)
    });
    let memory = attacked.gateway.resident_mib();
    println!("{rounds} heads of 64 MB each: {memory} MiB");
    assert!(attacked.asked() <= 1);
    attacked.is_well();
    let _ = stream.shutdown(std::net::Shutdown::Both);
    reader.join().unwrap();
}

/// Frames that say nothing: they are read and forgotten, or the connection ends.
#[test]
fn others_are_served_while_somebody_sends_frames_that_say_nothing() {
    let open_upload = |gateway: SocketAddr| {
        let mut stream = greeted(gateway);
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, POST)).unwrap();
        stream
    };
    let open_head = |gateway: SocketAddr| {
        let mut stream = greeted(gateway);
        stream.write_all(&frame(HEADERS, END_STREAM, 1, GET)).unwrap();
        stream
    };
    let unknown_kind = 0x42;
    let empty = [
        ("empty DATA", frame(DATA, 0, 1, &[])),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("acknowledgements of nothing", frame(PING, ACK, 0, &[0; 8])),
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("unknown frames", frame(unknown_kind, 0, 0, &[])),
        ("windows to and fro", [windows(1), windows(65_535)].concat()),
    ];
    for (what, one) in empty {
        let mut attacked = Attacked::start("");
        let many = one.repeat(100);
        let flood = Flood::start(&attacked, open_upload, move |_| many.clone());
        others_are_served(&mut attacked, vec![flood], what);
    }
    let mut attacked = Attacked::start("");
    let many = frame(CONTINUATION, 0, 1, &[]).repeat(100);
    let flood = Flood::start(&attacked, open_head, move |_| many.clone());
    others_are_served(&mut attacked, vec![flood], "empty CONTINUATION");
}

/// What many connections upload, and nobody has room for, stays with the clients.
#[test]
fn uploads_that_wait_for_room_are_bounded() {
    const CONNECTIONS: usize = 600;
    let attacked = Attacked::start("");
    let before = attacked.gateway.resident_mib();
    let mut open = Vec::new();
    let mut sent = 0;
    for number in 0..CONNECTIONS {
        let (mut stream, window) = greeted_and_measured(attacked.gateway.address);
        let key = field("idempotency-key", &format!("upload-{number}"));
        let head = [POST, &key, &field("content-length", &MIB.to_string())].concat();
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, &head)).unwrap();
        let mut left = window.min(MIB - 1);
        sent += left;
        while left > 0 {
            let some = left.min(MAX_PAYLOAD);
            // The gateway may have refused it.
            if stream.write_all(&frame(DATA, 0, 1, &vec![b'x'; some])).is_err() {
                break;
            }
            left -= some;
        }
        let _ = stream.write_all(&frame(PING, 0, 0, &[9; 8]));
        open.push(stream);
    }
    // All of it has arrived when the answer to that has.
    for stream in &mut open {
        loop {
            let (kind, payload) = next_frame(stream);
            assert_ne!(kind, RST_STREAM, "it was not what the gateway has room for: {payload:?}");
            if kind == PING {
                break;
            }
        }
    }
    let memory = attacked.gateway.resident_mib();
    println!("{before} MiB before, {memory} MiB after {} MiB of uploads", sent / MIB);
    assert!(memory < FLOODED_MIB, "{memory} MiB");
    assert_eq!(pay(attacked.gateway.address, "small", "x").status(), 201);
    drop(open);
    assert_eq!(attacked.asked(), 1, "only the small one was whole");
}

/// Every stream asks for a large answer and opens a window of one byte.
#[test]
fn answers_that_are_taken_byte_by_byte_are_bounded_and_end() {
    const CONNECTIONS: usize = 3;
    const STREAMS: u32 = 256;
    let mut attacked = Attacked::serving_large("[timeouts]\nidle = '2s'\n", MIB);
    let open: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = greeted_with(attacked.gateway.address, &windows(1));
            for number in 0..STREAMS {
                let asked = frame(HEADERS, END_STREAM | END_HEADERS, number * 2 + 1, GET);
                stream.write_all(&asked).unwrap();
            }
            // All of it has arrived when the answer to this has.
            stream.write_all(&frame(PING, 0, 0, &[1; 8])).unwrap();
            while next_frame(&mut stream).0 != PING {}
            stream
        })
        .collect();
    let start = seconds();
    attacked.is_well();
    let took = seconds() - start;
    let memory = attacked.gateway.resident_mib();
    println!("others waited {took:.3} s; {memory} MiB with {} answers", CONNECTIONS * 256);
    assert!(took < AT_ONCE, "{took} s");
    assert!(memory < FLOODED_MIB, "{memory} MiB");
    // Nobody who reads nothing is waited for.
    for mut stream in open {
        crate::hardening::attacked::heard(&mut stream);
    }
    attacked.is_well();
}
