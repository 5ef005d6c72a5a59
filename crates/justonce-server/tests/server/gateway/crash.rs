//! The crash matrix: `kill -9` at every stage of an operation, then a restart on the same store.
//!
//! Nothing takes effect twice under `hold`, what was acknowledged is replayed byte for byte, and
//! keys are free again, or unknown, once the lease has lapsed.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::gateway::stage::{BODY, started};
use crate::support::client::{Call, pay, pay_patiently, state, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

const HOLD: &str = "[defaults]\nlease = '1s'\n";
const RERUN: &str = "[defaults]\nlease = '1s'\non_lapsed = 'rerun'\n";
/// After a crash in the middle of an operation under `hold`: busy for as long as the lease may
/// still run, then unknown, and the service gets no second request.
fn is_held(gateway: &Gateway, upstream: &Upstream, key: &str) {
    let first = pay(gateway.address, key, BODY);
    assert!(matches!(first.code().as_str(), "in-flight" | "outcome-unknown"), "{first:?}");
    let later = pay_patiently(gateway.address, key, BODY);
    assert_eq!((later.status(), later.code().as_str()), (409, "outcome-unknown"), "{later:?}");
    assert_eq!(state(gateway.address, key), "unknown");
    assert!(upstream.is_left_alone(), "the service was asked again");
}

#[test]
fn killed_after_the_claim_under_hold() {
    let (home, upstream, gateway) = started(HOLD);
    let _call = Call::pay(gateway.address, "k", BODY);
    // The claim is durable before the service hears anything, so it is now.
    let connection = upstream.accept();
    gateway.kill();
    drop(connection);
    is_held(&home.start(), &upstream, "k");
}

#[test]
fn killed_after_the_claim_under_rerun() {
    let (home, upstream, gateway) = started(RERUN);
    let _call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    let first = connection.read();
    assert_eq!(first.header("idempotency-attempt"), Some("1"));
    gateway.kill();
    let gateway = home.start();
    let mut retry = Call::pay_with(gateway.address, "k", BODY, "prefer: wait=20\r\n");
    let mut connection = upstream.accept();
    let second = connection.read();
    connection.answer("201 Created", &[], b"paid");
    let answer = retry.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (201, "paid"));
    let fence = |message: &crate::support::upstream::Message| {
        message.header("idempotency-fence").and_then(|fence| fence.parse::<u64>().ok()).unwrap()
    };
    assert!(fence(&second) > fence(&first), "fences grow also over a crash");
    assert_eq!(pay(gateway.address, "k", BODY).header("idempotent-replayed"), Some("true"));
}

#[test]
fn killed_after_the_upstream_accepted() {
    let (home, upstream, gateway) = started(HOLD);
    let _call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.kill();
    is_held(&home.start(), &upstream, "k");
}

#[test]
fn killed_in_the_middle_of_the_upstreams_answer() {
    let (home, upstream, gateway) = started(HOLD);
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    connection.begin_answer("201 Created", &[], 1_000_000);
    connection.write(&[b'x'; 500_000]);
    // The caller has a part of it already: it is streamed.
    call.some(1000);
    gateway.kill();
    is_held(&home.start(), &upstream, "k");
}

#[test]
fn killed_when_the_upstream_has_answered() {
    for _ in 0..5 {
        let (home, upstream, gateway) = started(HOLD);
        let _call = Call::pay(gateway.address, "k", BODY);
        let mut connection = upstream.accept();
        connection.read();
        connection.answer("201 Created", &[], b"paid");
        gateway.kill();
        let gateway = home.start();
        // Whether the outcome was stored is a matter of microseconds; twice is never.
        let answer = pay_patiently(gateway.address, "k", BODY);
        match answer.status() {
            201 => assert_eq!(answer.text(), "paid"),
            _ => assert_eq!(answer.code(), "outcome-unknown"),
        }
        assert!(upstream.is_left_alone(), "the service was asked again");
    }
}

#[test]
fn killed_after_the_outcome_was_stored() {
    let (home, upstream, gateway) = started(HOLD);
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
    let call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    connection.answer("201 Created", &[("x-part", "1"), ("x-part", "2")], &body);
    // The caller reads nothing, and still the outcome is stored.
    until("the outcome", || state(gateway.address, "k"), |state| state == "completed");
    gateway.kill();
    drop(call);
    let gateway = home.start();
    let replay = pay(gateway.address, "k", BODY);
    assert_eq!(replay.status(), 201);
    assert!(replay.body == body, "the replay differs");
    let parts = replay.headers.iter().filter(|(name, _)| name == "x-part");
    assert_eq!(parts.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    assert!(upstream.is_left_alone());
}

#[test]
fn killed_in_the_middle_of_writing_to_the_client() {
    let (home, upstream, gateway) = started(HOLD);
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    connection.answer("201 Created", &[], &body);
    let begun = call.some(100_000);
    until("the outcome", || state(gateway.address, "k"), |state| state == "completed");
    gateway.kill();
    let gateway = home.start();
    let replay = pay(gateway.address, "k", BODY);
    assert!(replay.body == body, "the replay differs");
    let start = begun.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(body.starts_with(&begun[start..]), "the beginning differs");
    assert!(upstream.is_left_alone());
}

#[test]
fn killed_right_after_an_acknowledgement() {
    let (home, upstream, mut gateway) = started(HOLD);
    let asked = upstream.serve();
    for round in 0..10 {
        let (key, body) = (format!("k-{round}"), format!("{{\"amount\":{round}}}"));
        let first = pay(gateway.address, &key, &body);
        assert_eq!(first.status(), 201);
        gateway.kill();
        gateway = home.start();
        let replay = pay(gateway.address, &key, &body);
        assert_eq!((replay.status(), &replay.body), (201, &first.body));
        assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 10);
}

#[test]
fn a_log_that_nobody_reads_any_more_fails_no_request() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    upstream.serve();
    let mut command = home.command();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("listening on http://").unwrap().parse().unwrap();
    drop(child.stderr.take());
    for number in 0..5 {
        assert_eq!(pay(address, &format!("k{number}"), BODY).status(), 201);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
