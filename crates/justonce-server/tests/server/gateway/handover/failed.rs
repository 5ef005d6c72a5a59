//! Restarts that fail: nothing else does.

use std::net::TcpStream;

use nix::sys::signal::Signal;

use super::stage::{Restarting, Successor, restarted};
use crate::gateway::stage::{BODY, started};
use crate::support::client::{Call, pay, state, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

#[test]
fn h55_what_runs_for_too_long_makes_the_restart_fail_and_nothing_else() {
    let Restarting { home: _home, upstream, gateway, mut running, mut connection } =
        Restarting::start("handover_pause = '200ms'");
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("had not ended within `handover_pause`"), "{line}");
    // It accepts connections again, and what ran goes on.
    let mut other = Call::pay(gateway.address, "other", BODY);
    let mut second = upstream.accept();
    second.read();
    second.answer("201 Created", &[], b"other");
    assert_eq!(other.answer().text(), "other");
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(running.answer().text(), "paid");
    // And the next restart succeeds.
    let _successor = restarted(&gateway);
    assert!(pay(gateway.address, "running", BODY).is_replay());
}

#[test]
fn h55_what_ran_before_for_too_long_makes_the_restart_fail_and_nobody_wait() {
    let (_home, upstream, gateway) = started("grace = '100ms'");
    let mut running = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    let lines = gateway.log_up_to("the restart failed");
    assert!(lines.last().unwrap().contains("1 requests have not ended within `grace`"));
    assert!(!lines.iter().any(|line| line.contains("new connections wait")), "{lines:?}");
    connection.answer("201 Created", &[], b"paid");
    let answer = running.answer();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("paid", None));
}

#[test]
fn h55_what_runs_for_too_long_makes_nobody_wait_in_the_next_restart_either() {
    let (_home, upstream, gateway) = started("grace = '100ms'");
    let mut running = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    for _ in 0..2 {
        gateway.signal(Signal::SIGUSR2);
        let lines = gateway.log_up_to("the restart failed");
        assert!(lines.last().unwrap().contains("1 requests have not ended within `grace`"));
        assert!(!lines.iter().any(|line| line.contains("new connections wait")), "{lines:?}");
    }
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(running.answer().text(), "paid");
}

#[test]
fn h55_a_successor_with_a_wrong_configuration_changes_nothing() {
    let (home, upstream, gateway) = started("");
    let address = upstream.address();
    upstream.serve();
    home.configure(address, "[defaults]\nretenton = '1h'");
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("the successor has ended"), "{line}");
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert_eq!(Call::get(gateway.admin, "/readyz").status(), 200);
    home.configure(address, "");
    let _successor = restarted(&gateway);
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn h55_a_successor_that_fails_with_the_store_in_its_hands_gives_it_back() {
    let (home, upstream, gateway) = started("");
    let address = upstream.address();
    upstream.serve();
    assert_eq!(pay(gateway.address, "before", BODY).status(), 201);
    // What cannot be opened is found out only by opening it.
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    home.configure_on(address, &format!("file:{}", file.display()), "");
    gateway.signal(Signal::SIGUSR2);
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("the successor has ended"), "{line}");
    assert!(pay(gateway.address, "before", BODY).is_replay());
    assert_eq!(pay(gateway.address, "after", BODY).status(), 201);
    home.configure(address, "");
    let _successor = restarted(&gateway);
    for key in ["before", "after"] {
        assert!(pay(gateway.address, key, BODY).is_replay());
    }
}

#[test]
fn h55_two_signals_at_once_start_one_successor() {
    let (_home, upstream, gateway) = started("");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    let successor = Successor::of(&gateway.log_line("a successor starts"));
    gateway.signal(Signal::SIGUSR2);
    gateway.log_line("clients are told to come back");
    gateway.signal(Signal::SIGUSR2);
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    let lines = gateway.log_up_to("stopped");
    let starts = lines.iter().filter(|line| line.contains("a successor starts")).count();
    assert_eq!(starts, 0, "{lines:?}");
    assert!(successor.is_alive());
    assert!(pay(gateway.address, "k", BODY).is_replay());
}

#[test]
fn h55_a_predecessor_that_is_killed_in_the_middle_leaves_everything_to_its_successor() {
    let Restarting { home: _home, upstream, gateway, running: _running, connection: _connection } =
        Restarting::start("[defaults]\nlease = '1s'\n");
    let mut waiting = Call::pay(gateway.address, "waiting", BODY);
    let address = gateway.address;
    gateway.signal(Signal::SIGKILL);
    gateway.log_line("the predecessor has died");
    let line = gateway.log_line("an engine starts");
    let _successor = Successor::of(&line);
    let mut second = upstream.accept();
    second.read();
    second.answer("201 Created", &[], b"paid");
    assert_eq!(waiting.answer().text(), "paid");
    // As after any crash.
    until("unknown", || state(address, "running"), |state| state == "unknown");
    assert!(upstream.is_left_alone());
    let _ = gateway.wait();
}

#[test]
fn h55_a_signal_to_stop_in_the_middle_ends_both() {
    let (_home, upstream, gateway) = started("grace = '20s'");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGUSR2);
    let successor = Successor::of(&gateway.log_line("a successor starts"));
    gateway.log_line("clients are told to come back");
    gateway.signal(Signal::SIGTERM);
    gateway.log_line("there will be no successor");
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    let address = gateway.address;
    assert!(gateway.wait().success());
    until("its end", || successor.is_alive(), |alive| !alive);
    assert!(TcpStream::connect(address).is_err());
}

/// With a store that processes share, the old one waits for its clients while the new one serves.
/// Here their stores are two, which makes no difference to that.
struct ComingOver {
    upstream: Upstream,
    gateway: Gateway,
    successor: Successor,
    /// The old one waits for it.
    _rests: Call,
    _home: Home,
}

impl ComingOver {
    fn start() -> Self {
        let (home, upstream) = (Home::new(), Upstream::new());
        home.configure_on(upstream.address(), "memory:", "grace = '20s'");
        let gateway = home.start();
        let ask = |call: &mut Call| {
            let path = "/.well-known/idempotency/k?path=/payments";
            call.write(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes());
            call.answer().header("connection").map(str::to_owned)
        };
        let [mut rests, mut asks] = [(); 2].map(|()| Call::connect(gateway.address));
        assert_eq!((ask(&mut rests), ask(&mut asks)), (None, None));
        gateway.signal(Signal::SIGUSR2);
        let successor = Successor::of(&gateway.log_line("a successor starts"));
        // From here on, the successor accepts all connections.
        until("a word", || ask(&mut asks), |said| said.as_deref() == Some("close"));
        Self { upstream, gateway, successor, _rests: rests, _home: home }
    }
}

#[test]
fn h55_a_signal_to_stop_cuts_off_nothing_that_the_successor_executes() {
    let ComingOver { upstream, gateway, successor, _rests, _home } = ComingOver::start();
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGTERM);
    gateway.log_line("there will be no successor");
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    assert!(gateway.wait().success());
    until("its end", || successor.is_alive(), |alive| !alive);
}

#[test]
fn h55_a_successor_that_dies_while_clients_come_over_changes_nothing() {
    let ComingOver { upstream, gateway, successor, _rests, _home } = ComingOver::start();
    successor.signal(Signal::SIGKILL);
    let line = gateway.log_line("the restart failed");
    assert!(line.contains("the successor has ended"), "{line}");
    upstream.serve();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
}
