//! The HTTP server of Python's standard library, whose connections do not stay open for long.

use std::path::Path;

use justonce_testbed::{WebServer, program};

use crate::support::client::{pay, state, until};
use crate::support::process::Home;

/// How often all connections are closed.
const ROUNDS: usize = 12;
/// How many requests are sent at once in each round.
const AT_ONCE: usize = 8;

fn count(server: &WebServer, line: &str) -> usize {
    server.log().lines().filter(|found| found.starts_with(line)).count()
}

/// Each round meets connections that the server has just closed.
#[test]
fn h40_connections_that_the_server_has_closed_cost_nothing() {
    let python = program("python3", &[], "python3").unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/servers/short_keep_alive.py");
    let server = WebServer::start(&python, |_: &Path, address| {
        vec![script.into(), address.port().to_string().into()]
    });
    let server = server.unwrap();
    let home = Home::new();
    home.configure(server.address(), "");
    let gateway = home.start();
    let all_closed = || {
        // What is counted first may be fewer by then.
        let open = || {
            let closed = count(&server, "closed");
            count(&server, "opened") - closed
        };
        until("the end of all connections", open, |open| *open == 0);
    };
    for round in 0..ROUNDS {
        let callers = (0..AT_ONCE).map(|number| {
            let (key, address) = (format!("{round}-{number}"), gateway.address);
            std::thread::spawn(move || {
                let answer = pay(address, &key, "{\"amount\":5}");
                assert_eq!((answer.status(), answer.is_replay()), (201, false), "{answer:?}");
                assert_eq!(state(address, &key), "completed");
            })
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        all_closed();
    }
    assert_eq!(count(&server, "effect"), ROUNDS * AT_ONCE);
}
