//! Clients that try to fill the gateway's memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::hardening::attacked::{Attacked, MEMORY_MIB, heard, seconds, statuses};
use crate::support::client::{Call, pay, until};

const MIB: usize = 1024 * 1024;
/// What a flood of large bodies may take: the store's caches and the buffers of all connections
/// are bounded, but not by what a quiet gateway needs.
const FLOODED_MIB: u64 = 512;

/// Bytes that no compression makes smaller.
fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(step).flatten().take(count).collect()
}

fn head(key: &str, length: usize) -> Vec<u8> {
    format!(
        "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: {key}\r\n\
         content-length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// A replay that is not read waits in the gateway: once, not once for each request.
#[test]
fn replays_that_nobody_reads_do_not_add_up() {
    let config = "[defaults]\nfingerprint = { body = 'none' }\nrequest_body = '4MB'\n";
    let mut attacked = Attacked::start(config);
    let body = noise(3 * MIB, 1);
    let mut first = Call::connect(attacked.gateway.address);
    first.write(&[head("large", body.len()), body.clone()].concat());
    assert!(first.answer().body == body, "the answer is the body");
    let before = attacked.gateway.resident_mib();
    let idle: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = attacked.connect();
            stream.write_all(&head("large", 0)).unwrap();
            // It has begun to answer; the rest is never read.
            stream.read_exact(&mut [0; 1]).unwrap();
            stream
        })
        .collect();
    let memory = attacked.gateway.resident_mib();
    println!("{before} MiB before, {memory} MiB with {} that do not read", idle.len());
    assert!(memory < MEMORY_MIB, "{memory} MiB");
    attacked.is_well();
    drop(idle);
    assert_eq!(attacked.asked(), 1);
    attacked.is_well();
}

/// Bodies at the limit, each with a key of its own, from many at once.
#[test]
fn a_flood_of_keys_with_large_bodies_is_bounded() {
    const CLIENTS: u64 = 32;
    const REQUESTS: u64 = 12;
    let attacked = Attacked::start("");
    let body = Arc::new(noise(MIB, 2));
    let address = attacked.gateway.address;
    let start = seconds();
    let flood = (0..CLIENTS).map(|client| {
        let body = Arc::clone(&body);
        std::thread::spawn(move || {
            let mut call = Call::connect(address);
            for number in 0..REQUESTS {
                call.write(&head(&format!("{client}-{number}"), body.len()));
                call.write(&body);
                assert_eq!(call.answer().status(), 201);
            }
        })
    });
    let most = most_memory(&attacked, flood.collect());
    println!("{} operations in {:.1} s, at most {most} MiB", attacked.asked(), seconds() - start);
    assert_eq!(attacked.asked() as u64, CLIENTS * REQUESTS);
    assert!(most < FLOODED_MIB, "{most} MiB");
    assert_eq!(pay(address, "well", "x").status(), 201);
}

/// Bodies that stop just before their end, from many at once.
#[test]
fn bodies_that_stop_before_their_end_are_bounded() {
    // Twice what is allowed, if each were held.
    const HELD: u64 = 2 * FLOODED_MIB;
    let attacked = Attacked::start("[timeouts]\nbody = '2s'\n");
    let body = Arc::new(noise(MIB - 1, 3));
    let start = seconds();
    let held = (0..HELD).map(|number| {
        let (body, mut stream) = (Arc::clone(&body), attacked.connect());
        std::thread::spawn(move || {
            stream.write_all(&head(&format!("held-{number}"), MIB)).unwrap();
            // The gateway may have no room for it, and close.
            let _ = stream.write_all(&body);
            let answers = statuses(&heard(&mut stream));
            assert!(answers.iter().all(|status| *status >= 400), "{answers:?}");
        })
    });
    let held: Vec<JoinHandle<()>> = held.collect();
    // Small requests pass in the meantime.
    assert_eq!(pay(attacked.gateway.address, "small", "x").status(), 201);
    let most = most_memory(&attacked, held);
    println!("at most {most} MiB, over in {:.1} s", seconds() - start);
    assert!(most < FLOODED_MIB, "{most} MiB");
    assert_eq!(attacked.asked(), 1, "only the small one was whole");
    assert_eq!(pay(attacked.gateway.address, "well", "x").status(), 201);
}

/// The most memory the gateway takes until all of these are done.
fn most_memory(attacked: &Attacked, threads: Vec<JoinHandle<()>>) -> u64 {
    let mut most = 0;
    until(
        "the end of the attack",
        || {
            most = most.max(attacked.gateway.resident_mib());
            threads.iter().all(JoinHandle::is_finished)
        },
        |ended| *ended,
    );
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    most
}
