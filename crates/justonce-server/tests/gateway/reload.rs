//! New routes without a restart.

use nix::sys::signal::Signal;

use crate::client::{Call, until};
use crate::process::Home;
use crate::upstream::Upstream;

const OPTIONAL: &str = "[[route]]\nmatch = 'POST /payments'\nkey = 'optional'\n";
const REQUIRED: &str = "[[route]]\nmatch = 'POST /payments'\nkey = 'required'\n";

/// The status of a payment without a key.
fn without_key(address: std::net::SocketAddr) -> u16 {
    let mut call = Call::connect(address);
    call.write(b"POST /payments HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{}");
    call.answer().status()
}

#[test]
fn a_changed_file_and_sighup_change_the_routes() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let address = upstream.address();
    home.configure(address, OPTIONAL);
    upstream.serve();
    let gateway = home.start();
    assert_eq!(without_key(gateway.address), 201);
    // The file is watched.
    home.configure(address, REQUIRED);
    until("the new route", || without_key(gateway.address), |status| *status == 400);
    // And it is read again on SIGHUP, changed or not.
    gateway.log_line("new routes are in force");
    gateway.signal(Signal::SIGHUP);
    let line = gateway.log_line("new routes are in force");
    assert!(line.contains("SIGHUP"), "{line}");
    assert_eq!(without_key(gateway.address), 400);
}

#[test]
fn a_bad_file_leaves_the_old_routes_in_force_loudly() {
    let (home, upstream) = (Home::new(), Upstream::new());
    let address = upstream.address();
    home.configure(address, REQUIRED);
    upstream.serve();
    let gateway = home.start();
    home.configure(address, "[[route]]\nmatch = 'POST /payments'\nkee = 'optional'\n");
    let line = gateway.log_line("the new configuration is wrong");
    assert!(line.contains("ERROR"), "{line}");
    gateway.log_line("did you mean `key`?");
    assert_eq!(without_key(gateway.address), 400);
    let metrics = Call::get(gateway.admin, "/metrics").text();
    assert!(metrics.contains("justonce_reloads_total{result=\"refused\"} 1"), "{metrics}");
    // And a good one after it counts again.
    home.configure(address, OPTIONAL);
    until("the good route", || without_key(gateway.address), |status| *status == 201);
}

#[test]
fn a_wrong_configuration_does_not_start() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "[defaults]\nretenton = '1h'");
    let error = crate::process::Gateway::start(home.command()).err().unwrap();
    assert!(error.contains("justonce.toml:6:1"), "{error}");
    assert!(error.contains("did you mean `retention`?"), "{error}");
}
