//! Floods of HTTP/2 frames, written by hand.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::hardening::attacked::{Attacked, heard};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `GET http://t/`, in the short forms that every peer knows.
const GET: &[u8] = b"\x82\x86\x84\x41\x01t";
/// The reason "no longer wanted".
const CANCEL: &[u8] = &[0, 0, 0, 8];
/// Far more than any client sends.
const FLOOD: u32 = 100_000;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection that speaks HTTP/2.
fn greeted(attacked: &Attacked) -> TcpStream {
    let mut stream = attacked.connect();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    assert_eq!(next_frame(&mut stream).0, SETTINGS);
    stream
}

/// Sends the frames of many rounds until the gateway has had enough. How many rounds it took.
fn flood(stream: &mut TcpStream, mut round: impl FnMut(u32) -> Vec<u8>) -> u32 {
    for number in 0..FLOOD {
        if stream.write_all(&round(number)).is_err() {
            return number;
        }
    }
    FLOOD
}

/// Reads in the background, so that the flood is not stopped by a full line.
fn with_reader(stream: &TcpStream) -> std::thread::JoinHandle<Vec<u8>> {
    let mut reader = stream.try_clone().unwrap();
    std::thread::spawn(move || heard(&mut reader))
}

#[test]
fn rapid_resets_end_the_connection() {
    let mut attacked = Attacked::start("");
    let mut stream = greeted(&attacked);
    let reader = with_reader(&stream);
    let rounds = flood(&mut stream, |number| {
        let id = number * 2 + 1;
        let asked = frame(HEADERS, END_STREAM | END_HEADERS, id, GET);
        [asked, frame(RST_STREAM, 0, id, CANCEL)].concat()
    });
    println!("ended after {rounds} resets; the service was asked {} times", attacked.asked());
    assert!(rounds < FLOOD, "all resets were put up with");
    reader.join().unwrap();
    attacked.is_well();
}

#[test]
fn an_endless_head_ends_the_connection() {
    let mut attacked = Attacked::start("");
    let mut stream = greeted(&attacked);
    let reader = with_reader(&stream);
    stream.write_all(&frame(HEADERS, END_STREAM, 1, GET)).unwrap();
    // A field that is not indexed: `x: aaa…`.
    let field = [&b"\x00\x01x\x7f\x80\x07"[..], &[b'a'; 1023]].concat();
    let rounds = flood(&mut stream, |_| frame(CONTINUATION, 0, 1, &field));
    println!("ended after {rounds} KiB of a head");
    assert!(rounds < FLOOD);
    reader.join().unwrap();
    assert_eq!(attacked.asked(), 0);
    attacked.is_well();
}

/// Every frame demands an answer, and the answers are not read.
#[test]
fn answers_that_nobody_reads_do_not_pile_up() {
    for kind in [PING, SETTINGS] {
        let mut attacked = Attacked::start("");
        let mut stream = greeted(&attacked);
        stream.set_write_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
        let payload: &[u8] = if kind == PING { &[0; 8] } else { &[] };
        let many = frame(kind, 0, 0, payload).repeat(100);
        // It ends with a closed connection, or with a gateway that reads no more.
        let rounds = flood(&mut stream, |_| many.clone());
        println!("frame {kind}: stopped after {rounds} hundreds");
        attacked.is_well();
    }
}

/// The answer comes whole before the rest of the upload is declined without an error.
#[test]
fn h34_a_body_over_the_limit_is_answered_before_it_is_sent() {
    let mut attacked = Attacked::start("");
    let mut stream = greeted(&attacked);
    let field = |name: &str, value: &str| {
        let length = |text: &str| u8::try_from(text.len()).unwrap();
        let (name, value) = ([&[0, length(name)], name.as_bytes()].concat(), value);
        [&name[..], &[length(value)], value.as_bytes()].concat()
    };
    // `POST http://t/`
    let mut head = b"\x83\x86\x84\x41\x01t".to_vec();
    head.extend(field("idempotency-key", "k"));
    head.extend(field("content-length", "20000000"));
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &head)).unwrap();
    let mut answer = String::new();
    let reset = loop {
        let (kind, payload) = next_frame(&mut stream);
        match kind {
            DATA => answer.push_str(&String::from_utf8_lossy(&payload)),
            RST_STREAM => break payload,
            _ => {}
        }
    };
    assert!(answer.contains("\"body-too-large\""), "{answer}");
    assert_eq!(reset, [0; 4], "the reason is no error");
    assert_eq!(attacked.asked(), 0);
    attacked.is_well();
}

fn next_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let [a, b, c, kind, ..] = head;
    let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
    stream.read_exact(&mut payload).unwrap();
    (kind, payload)
}
