//! Graceful shutdown: what is under way finishes, nothing is lost.

use nix::sys::signal::Signal;

use crate::gateway::stage::{BODY, started};
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
