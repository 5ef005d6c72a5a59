//! nginx behind the gateway, which closes connections after a few requests.

use std::sync::atomic::Ordering;

use justonce_testbed::WebServer;

use crate::support::client::{pay, state};
use crate::support::process::Home;
use crate::support::upstream::Upstream;

const CLIENTS: usize = 4;
const OPERATIONS: usize = 100;

#[test]
fn h40_a_connection_that_nginx_closes_after_some_requests_costs_nothing() {
    let upstream = Upstream::new();
    let server = format!(
        "keepalive_requests 5;\nkeepalive_timeout 1s;\n\
         location / {{ proxy_pass http://{}; }}",
        upstream.address()
    );
    let nginx = WebServer::nginx("", &server).unwrap();
    let asked = upstream.serve();
    let home = Home::new();
    home.configure(nginx.address(), "");
    let gateway = home.start();
    let clients = (0..CLIENTS).map(|client| {
        let address = gateway.address;
        std::thread::spawn(move || {
            for number in 0..OPERATIONS {
                let key = format!("{client}-{number}");
                let (first, retry) = (pay(address, &key, "pay"), pay(address, &key, "pay"));
                assert_eq!((first.status(), first.is_replay()), (201, false), "{first:?}");
                assert_eq!((retry.status(), retry.is_replay()), (201, true), "{retry:?}");
                assert_eq!(first.body, retry.body);
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(asked.load(Ordering::SeqCst), CLIENTS * OPERATIONS);
}

/// What nginx says for a service that died is no outcome of the operation.
#[test]
fn h22_a_502_of_nginx_makes_the_operation_unknown() {
    let upstream = Upstream::new();
    let server = format!("location / {{ proxy_pass http://{}; }}", upstream.address());
    let nginx = WebServer::nginx("", &server).unwrap();
    let home = Home::new();
    home.configure(nginx.address(), "");
    let gateway = home.start();
    let service = std::thread::spawn(move || {
        // It reads the request, and dies.
        upstream.accept().read();
        upstream
    });
    let first = pay(gateway.address, "k", "pay");
    assert_eq!(first.status(), 502, "{first:?}");
    let upstream = service.join().unwrap();
    let retry = pay(gateway.address, "k", "pay");
    assert_eq!((retry.status(), retry.code().as_str()), (409, "outcome-unknown"), "{retry:?}");
    assert_eq!(state(gateway.address, "k"), "unknown");
    assert!(upstream.is_left_alone());
}
