//! Graceful shutdown: what is under way finishes, nothing is lost.

use std::net::TcpStream;

use nix::sys::signal::Signal;

use crate::gateway::stage::{BODY, started, upgraded};
use crate::support::client::{Call, pay, state, until};

#[test]
fn an_operation_under_way_finishes_before_the_gateway_ends() {
    let (home, upstream, gateway) = started("grace = '20s'");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGTERM);
    gateway.log_line("stopping");
    until("503", || Call::get(gateway.admin, "/readyz").status(), |status| *status == 503);
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    assert!(gateway.wait().success());
    let gateway = home.start();
    assert_eq!(pay(gateway.address, "k", BODY).header("idempotent-replayed"), Some("true"));
}

#[test]
fn an_operation_whose_caller_has_left_finishes_too() {
    let (home, upstream, gateway) = started("grace = '20s'");
    let call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    drop(call);
    gateway.signal(Signal::SIGTERM);
    gateway.log_line("stopping");
    connection.answer("201 Created", &[], b"paid");
    assert!(gateway.wait().success());
    let gateway = home.start();
    assert_eq!(pay(gateway.address, "k", BODY).text(), "paid");
}

/// Load balancers send the request elsewhere then.
#[test]
fn who_connects_while_it_ends_is_refused_and_not_left_waiting() {
    let (_home, upstream, gateway) = started("grace = '20s'");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGTERM);
    gateway.log_line("stopping");
    let is_refused = || TcpStream::connect(gateway.address).is_err();
    until("a refusal", is_refused, |is_refused| *is_refused);
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().text(), "paid");
    assert!(gateway.wait().success());
}

#[test]
fn with_a_drain_delay_readiness_falls_first_and_requests_go_on() {
    let (_home, upstream, gateway) = started("drain_delay = '1h'\ngrace = '20s'");
    let ready = || Call::get(gateway.admin, "/readyz").status();
    upstream.serve();
    assert_eq!(ready(), 200);
    gateway.signal(Signal::SIGTERM);
    until("503", ready, |status| *status == 503);
    // Load balancers have not noticed yet: also new connections are served.
    for number in 0..5 {
        assert_eq!(pay(gateway.address, &format!("k{number}"), BODY).status(), 201);
    }
    gateway.log_line("requests are still taken");
    // A second signal ends the delay.
    let address = gateway.address;
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_drain_delay_ends_by_itself() {
    let (_home, upstream, gateway) = started("drain_delay = '100ms'");
    upstream.serve();
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
}

#[test]
fn a_websocket_holds_the_end_no_longer_than_the_grace_period() {
    let (_home, upstream, gateway) = started("grace = '300ms'");
    let (mut client, mut server) = upgraded(&upstream, &gateway);
    gateway.signal(Signal::SIGTERM);
    gateway.log_line("stopping");
    server.write(b"still there");
    assert_eq!(client.some(11), b"still there");
    assert!(gateway.wait().success());
    assert!(client.try_answer().is_none() && server.try_read().is_none());
}

#[test]
fn what_does_not_finish_in_time_is_handed_over() {
    let (home, upstream, gateway) = started("grace = '300ms'\n[defaults]\nlease = '1s'");
    let _call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    let gateway = home.start();
    let retry = Call::pay_with(gateway.address, "k", BODY, "prefer: wait=20\r\n").answer();
    assert_eq!(retry.code(), "outcome-unknown");
    assert_eq!(state(gateway.address, "k"), "unknown");
    assert!(upstream.is_left_alone());
}
