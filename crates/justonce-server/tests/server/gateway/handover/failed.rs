//! Restarts that fail: nothing else does.

use std::net::TcpStream;

use nix::sys::signal::Signal;

use super::stage::{Restarting, Successor, restarted};
use crate::gateway::stage::{BODY, started};
use crate::support::client::{Call, pay, state, until};

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
