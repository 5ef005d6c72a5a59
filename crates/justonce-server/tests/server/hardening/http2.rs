//! Floods of HTTP/2 frames, written by hand.

use std::io::Write;

use crate::hardening::attacked::Attacked;
use crate::hardening::frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, FLOOD, GET, HEADERS, PING, POST,
    RST_STREAM, SETTINGS, field, flood, frame, greeted, next_frame, with_reader,
};

#[test]
fn rapid_resets_end_the_connection() {
    let mut attacked = Attacked::start("");
    let mut stream = greeted(attacked.gateway.address);
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
    let mut stream = greeted(attacked.gateway.address);
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
        let mut stream = greeted(attacked.gateway.address);
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
    let mut stream = greeted(attacked.gateway.address);
    let mut head = POST.to_vec();
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
