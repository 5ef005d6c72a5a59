//! A gateway dies, its client never comes back, and the operation is driven to its end all the
//! same: by the gateway that is started again, or by another one on the same store.

use std::net::SocketAddr;

use justonce_testbed::RedisServer;

use crate::gateway::stage::{BODY, started};
use crate::support::client::{Call, pay, state, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::{Connection, Message, Upstream};

const COMPLETE: &str = "completer.every = '100ms'\n[defaults]\nlease = '1s'\nscope = []\n\
                        on_lapsed = 'rerun'\ncomplete = true\n";
/// More rounds than fit into a lease.
const ROUNDS: u64 = 30;

fn fence(message: &Message) -> u64 {
    message.header("idempotency-fence").unwrap().parse().unwrap()
}

/// The stored request, sent again, with nothing in it changed but what tells of the attempt.
fn resent(upstream: &Upstream, first: &Message, attempt: &str) -> Connection {
    let mut connection = upstream.accept();
    let second = connection.read();
    assert_eq!((&second.start, &second.body), (&first.start, &first.body));
    assert_eq!(second.header("idempotency-attempt"), Some(attempt));
    assert!(fence(&second) > fence(first), "fences grow");
    let same = |message: &Message| {
        let mut headers = message.headers.clone();
        headers.retain(|(name, _)| name != "idempotency-attempt" && name != "idempotency-fence");
        headers.sort();
        headers
    };
    assert_eq!(same(&second), same(first));
    connection
}

fn completed(address: SocketAddr, key: &str) {
    until("the outcome", || state(address, key), |state| state == "completed");
}

/// One number of the metrics; 0 if it is not there.
fn metric(gateway: &Gateway, name: &str) -> u64 {
    let text = Call::get(gateway.admin, "/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_default()
}

const ENDED: &str = "justonce_completer_operations_total{result=\"ended\"}";
const MORE: &str = "cookie: session=7\r\nx-forwarded-for: 10.0.0.1\r\nx-shop: 9\r\nte: gzip\r\n";

#[test]
fn killed_while_the_upstream_works() {
    let (home, upstream, gateway) = started(COMPLETE);
    let _call = Call::pay_with(gateway.address, "k", BODY, MORE);
    let mut connection = upstream.accept();
    let first = connection.read();
    assert_eq!(first.header("x-forwarded-for"), Some("127.0.0.1"));
    gateway.kill();
    let gateway = home.start();
    // It is sent again without another request of its caller.
    resent(&upstream, &first, "2").answer("201 Created", &[("x-receipt", "9")], b"paid");
    completed(gateway.address, "k");
    let replay = pay(gateway.address, "k", BODY);
    assert!(replay.is_replay(), "{replay:?}");
    assert_eq!((replay.status(), replay.text().as_str()), (201, "paid"));
    assert_eq!(replay.header("x-receipt"), Some("9"));
    until("the count", || metric(&gateway, ENDED), |ended| *ended == 1);
    assert!(upstream.is_left_alone());
}

#[test]
fn killed_after_the_claim() {
    let (home, upstream, gateway) = started(COMPLETE);
    let _call = Call::pay(gateway.address, "k", BODY);
    // The claim is durable before the service hears anything, so it is now.
    let connection = upstream.accept();
    gateway.kill();
    drop(connection);
    let gateway = home.start();
    let mut connection = upstream.accept();
    let sent = connection.read();
    assert_eq!((sent.text().as_str(), sent.header("idempotency-key")), (BODY, Some("k")));
    connection.answer("201 Created", &[], b"paid");
    completed(gateway.address, "k");
    let mismatch = pay(gateway.address, "k", r#"{"amount":6}"#);
    assert_eq!(mismatch.code(), "key-mismatch", "what was asked is still known");
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn tried_again_until_there_is_an_answer_by_the_rules_of_every_request() {
    let (home, upstream, gateway) = started(COMPLETE);
    let _call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    let first = connection.read();
    gateway.kill();
    let gateway = home.start();
    // It breaks off; it says that it does not know; it refuses for now; then it answers.
    drop(resent(&upstream, &first, "2"));
    let mut connection = resent(&upstream, &first, "3");
    connection.answer("500 Oops", &[], b"");
    let again = connection.read();
    assert_eq!(again.header("idempotency-attempt"), Some("4"));
    connection.answer("401 Unauthorized", &[], b"the token is old");
    let again = connection.read();
    // An attempt that did nothing does not count.
    assert_eq!(again.header("idempotency-attempt"), Some("4"));
    connection.answer("404 Not Found", &[], b"no such account");
    completed(gateway.address, "k");
    let replay = pay(gateway.address, "k", BODY);
    assert_eq!((replay.status(), replay.text().as_str()), (404, "no such account"));
    assert!(replay.is_replay());
}

#[test]
fn headers_that_are_left_out_are_not_sent_again() {
    let config = format!("{COMPLETE}complete_without = ['cookie']\n");
    let (home, upstream, gateway) = started(&config);
    let _call = Call::pay_with(gateway.address, "k", BODY, MORE);
    let mut connection = upstream.accept();
    assert_eq!(connection.read().header("cookie"), Some("session=7"));
    gateway.kill();
    let _gateway = home.start();
    let mut connection = upstream.accept();
    let second = connection.read();
    assert_eq!((second.header("cookie"), second.header("x-shop")), (None, Some("9")));
}

#[test]
fn what_cannot_be_stored_is_refused_before_the_claim() {
    let (_home, upstream, gateway) = started(COMPLETE);
    let large = format!("{{\"note\":\"{}\"}}", "x".repeat(200 * 1024));
    let refused = pay(gateway.address, "k", &large);
    assert_eq!((refused.status(), refused.code().as_str()), (413, "body-too-large"));
    assert_eq!(state(gateway.address, "k"), "absent");
    assert!(upstream.is_left_alone());
}

/// What is driven on under new routes is not sent twice.
#[test]
fn new_routes_let_what_is_under_way_go_on() {
    let (home, upstream, gateway) = started(COMPLETE);
    let _call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    let first = connection.read();
    gateway.kill();
    let gateway = home.start();
    let mut connection = resent(&upstream, &first, "2");
    home.configure(upstream.address(), &format!("{COMPLETE}retention = '48h'\n"));
    gateway.log_line("new routes are in force");
    let rounds = metric(&gateway, "justonce_completer_rounds_total");
    until(
        "rounds under the new routes",
        || metric(&gateway, "justonce_completer_rounds_total"),
        |now| *now >= rounds + ROUNDS,
    );
    assert!(upstream.is_left_alone(), "it was sent twice under a living lease");
    connection.answer("201 Created", &[], b"paid");
    completed(gateway.address, "k");
}

#[test]
fn two_gateways_on_one_redis_send_it_once() {
    let server = RedisServer::start().unwrap();
    let upstream = Upstream::new();
    let homes = [Home::new(), Home::new()];
    for home in &homes {
        home.configure_on(upstream.address(), &server.url(), COMPLETE);
    }
    let (one, two) = (homes[0].start(), homes[1].start());
    let _call = Call::pay(one.address, "k", BODY);
    let mut connection = upstream.accept();
    let first = connection.read();
    one.kill();
    // The other one, or the first after its restart: whichever gets the claim.
    let one = homes[0].start();
    let mut connection = resent(&upstream, &first, "2");
    // One of the two drives it, and the other one looks on.
    let rounds = || [&one, &two].map(|one| metric(one, "justonce_completer_rounds_total"));
    let before: u64 = rounds().iter().sum();
    until("rounds", rounds, |now| now.iter().sum::<u64>() >= before + ROUNDS);
    assert!(upstream.is_left_alone(), "it was sent twice under a living lease");
    connection.answer("201 Created", &[], b"paid");
    for gateway in [&one, &two] {
        completed(gateway.address, "k");
        let replay = pay(gateway.address, "k", BODY);
        assert_eq!((replay.text().as_str(), replay.is_replay()), ("paid", true));
    }
    assert!(upstream.is_left_alone());
}

/// A service that hangs for one operation keeps the completer from no other.
#[test]
fn an_operation_that_hangs_keeps_no_other_waiting() {
    let server = RedisServer::start().unwrap();
    let upstream = Upstream::new();
    let homes = [Home::new(), Home::new(), Home::new()];
    let idle = COMPLETE.replace("'100ms'", "'1h'");
    for (home, config) in homes.iter().zip([&idle, COMPLETE, &idle]) {
        home.configure_on(upstream.address(), &server.url(), config);
    }
    let (one, two) = (homes[0].start(), homes[1].start());
    let _call = Call::pay(one.address, "hangs", BODY);
    let first = upstream.accept().read();
    one.kill();
    let mut hanging = resent(&upstream, &first, "2");
    // It hangs. Now another gateway dies.
    let three = homes[2].start();
    let _call = Call::pay(three.address, "k", BODY);
    let first = upstream.accept().read();
    three.kill();
    resent(&upstream, &first, "2").answer("201 Created", &[], b"paid");
    completed(two.address, "k");
    // The first one was not given up meanwhile.
    assert_eq!(state(two.address, "hangs"), "in_progress");
    assert!(upstream.is_left_alone());
    hanging.answer("201 Created", &[], b"late");
    completed(two.address, "hangs");
}

/// Nothing of this happens where a route does not say so.
#[test]
fn without_the_setting_nobody_asks_but_the_client() {
    let config = COMPLETE.replace("complete = true", "complete = false");
    let (home, upstream, gateway) = started(&config);
    let _call = Call::pay(gateway.address, "k", BODY);
    upstream.accept().read();
    gateway.kill();
    let gateway = home.start();
    assert_eq!(metric(&gateway, "justonce_completer_rounds_total"), 0, "there is no completer");
    assert!(upstream.is_left_alone());
}
