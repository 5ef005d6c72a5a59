//! Every way into *unknown* is counted once, by whichever gateway notices it.

use std::collections::BTreeMap;

use crate::gateway::stage::BODY;
use crate::gateway::unknown::stage::{Server, Stage, admin_get};
use crate::support::client::{Call, pay, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

/// How many operations are in progress when a gateway is killed.
const KILLED_WITH: usize = 13;
/// How many of them are asked for again; the others are found by a sweep.
const ASKED_AGAIN: usize = 5;

const CONFIG: &str = "[defaults]\nlease = '1s'\n\
                      [[route]]\nmatch = 'POST /payments'\nname = 'payments'\n";

/// What became unknown, by route and reason, over all these gateways; zeros are left out.
fn counted(gateways: &[&Gateway]) -> BTreeMap<(String, String), u64> {
    let mut counted = BTreeMap::new();
    for gateway in gateways {
        let text = admin_get(gateway.admin, "/metrics").text();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("idempotency_unknown_outcomes_total{route=\""));
        for line in lines {
            let (route, rest) = line.split_once("\",reason=\"").unwrap();
            let (reason, count) = rest.split_once("\"} ").unwrap();
            let count: u64 = count.parse().unwrap();
            if count > 0 {
                *counted.entry((route.to_owned(), reason.to_owned())).or_default() += count;
            }
        }
    }
    counted
}

fn only(reason: &str, count: u64) -> BTreeMap<(String, String), u64> {
    BTreeMap::from([(("payments".to_owned(), reason.to_owned()), count)])
}

/// Kills a gateway with operations in progress, and counts on those that remain.
fn killed_with_operations_in_progress(server: &Server) {
    let (home, upstream) = (Home::new(), Upstream::new());
    let configure = |home: &Home| match server.url() {
        None => home.configure(upstream.address(), CONFIG),
        Some(url) => home.configure_on(upstream.address(), &url, CONFIG),
    };
    configure(&home);
    let killed = home.start();
    let keys: Vec<String> = (0..KILLED_WITH).map(|n| format!("key-{n}")).collect();
    let under_way: Vec<_> = keys
        .iter()
        .map(|key| {
            let call = Call::pay(killed.address, key, BODY);
            let mut connection = upstream.accept();
            connection.read();
            (call, connection)
        })
        .collect();
    killed.kill();
    drop(under_way);
    // On a store that they share, two gateways remain; the embedded one opens again in one.
    let other = Home::new();
    let mut gateways = vec![home.start()];
    if server.url().is_some() {
        configure(&other);
        gateways.push(other.start());
    }
    let gateways: Vec<&Gateway> = gateways.iter().collect();
    for (n, key) in keys.iter().take(ASKED_AGAIN).enumerate() {
        let gateway = gateways[n % gateways.len()];
        let status = || pay(gateway.address, key, BODY).json()["code"].as_str().unwrap().to_owned();
        until("a lapse", status, |code| code == "outcome-unknown");
    }
    let all = KILLED_WITH as u64;
    until("the count", || counted(&gateways), |counted| *counted == only("lapsed", all));
    for key in &keys {
        for gateway in &gateways {
            assert_eq!(pay(gateway.address, key, BODY).status(), 409, "{}", server.name());
        }
    }
    assert_eq!(counted(&gateways), only("lapsed", all), "{}: counted again", server.name());
}

#[test]
fn operations_of_a_killed_gateway_are_counted_once_on_the_embedded_store() {
    killed_with_operations_in_progress(&Server::File);
}

#[test]
fn operations_of_a_killed_gateway_are_counted_once_on_redis_and_postgres() {
    for server in Server::all().iter().filter(|server| server.url().is_some()) {
        killed_with_operations_in_progress(server);
    }
}

#[test]
fn what_the_owner_reports_is_counted_with_its_reason() {
    for server in Server::all() {
        let stage = Stage::with(&server, CONFIG);
        stage.unknown("broken-off");
        let mut call = Call::pay(stage.gateway.address, "answered", BODY);
        let mut connection = stage.upstream.accept();
        connection.read();
        connection.answer("500 Internal Server Error", &[("connection", "close")], b"{}");
        assert_eq!(call.answer().status(), 500);
        assert_eq!(counted(&[&stage.gateway]), only("reported", 2), "{}", server.name());
        // Duplicates find them so, and are not counted again.
        assert_eq!(stage.pay("broken-off").status(), 409);
        assert_eq!(counted(&[&stage.gateway]), only("reported", 2), "{}", server.name());
    }
}

#[test]
fn a_lapse_that_is_resolved_before_anybody_noticed_it_is_counted_too() {
    let stage = Stage::with(&Server::File, CONFIG);
    let (stage, heard) = stage.killed_during("a");
    let resolved = || stage.release(&heard, "ann").status();
    until("the lapse", resolved, |status| *status == 200);
    assert_eq!(counted(&[&stage.gateway]), only("lapsed", 1));
}
