//! Connections to the service that are closed, and answers of unusual shapes.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay, state};
use crate::support::process::Home;
use crate::support::upstream::Upstream;

const HOLD: &str = "[[route]]\nmatch = 'POST /payments'\nkey = 'required'\non_lapsed = 'hold'\n";

#[test]
fn h40_a_service_that_closes_idle_connections_makes_nothing_unknown() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), HOLD);
    let gateway = home.start();
    for round in 0..5 {
        std::thread::scope(|scope| {
            let key = format!("round-{round}");
            let call = scope.spawn(move || pay(gateway.address, &key, BODY));
            let mut connection = upstream.accept();
            connection.read();
            connection.answer("201 Created", &[], b"paid");
            let answer = call.join().unwrap();
            assert_eq!((answer.status(), answer.text().as_str()), (201, "paid"));
            // It is idle now, and the service closes it.
            drop(connection);
        });
        assert_eq!(state(gateway.address, &format!("round-{round}")), "completed");
    }
}

#[test]
fn a_breaker_that_is_switched_off_never_opens() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "[breaker]\nenabled = false\n");
    let gateway = home.start();
    let address = upstream.address();
    drop(upstream);
    for number in 0..50 {
        let answer = pay(gateway.address, &format!("key-{number}"), BODY);
        assert_eq!(answer.status(), 502, "request {number}: {}", answer.text());
    }
    let asked = Upstream::at(address).serve();
    assert_eq!(pay(gateway.address, "back", BODY).status(), 201);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// Pays with a key, and the service says these bytes and closes.
fn answered(route: &str, said: &str) -> (u16, String, String) {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), &format!("{HOLD}{route}"));
    let gateway = home.start();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| pay(gateway.address, "abc", BODY));
        let mut connection = upstream.accept();
        connection.read();
        connection.write(said.as_bytes());
        drop(connection);
        let answer = call.join().unwrap();
        (answer.status(), answer.text(), state(gateway.address, "abc"))
    })
}

#[test]
fn h51_an_answer_that_only_a_close_ends_is_not_stored_as_whole() {
    let half = "HTTP/1.1 201 Created\r\nx: y\r\n\r\n{\"paid\":";
    let (status, text, state) = answered("", half);
    assert_eq!((status, text.as_str(), state.as_str()), (201, "{\"paid\":", "unknown"));
    // The route knows better.
    let (status, text, state) = answered("unframed = 'keep'\n", half);
    assert_eq!((status, text.as_str(), state.as_str()), (201, "{\"paid\":", "completed"));
    // HTTP/1.0 had nothing better.
    let (status, text, state) = answered("", "HTTP/1.0 201 Created\r\n\r\npaid");
    assert_eq!((status, text.as_str(), state.as_str()), (201, "paid", "completed"));
    // What was not executed was not executed, however long the explanation.
    let (status, _, state) = answered("", "HTTP/1.1 429 Too Many Requests\r\n\r\nslow do");
    assert_eq!((status, state.as_str()), (429, "absent"));
}

#[test]
fn an_answer_with_many_headers_is_stored_and_one_with_too_many_says_so() {
    let with = |count: usize| {
        let mut answer = "HTTP/1.1 201 Created\r\ncontent-length: 4\r\n".to_owned();
        for number in 1..count {
            write!(answer, "x-{number}: y\r\n").unwrap();
        }
        answer + "\r\npaid"
    };
    let (status, text, state) = answered("", &with(300));
    assert_eq!((status, text.as_str(), state.as_str()), (201, "paid", "completed"));
    let (status, text, state) = answered("", &with(600));
    assert_eq!((status, state.as_str()), (502, "unknown"));
    assert!(text.contains("more than 512 header fields"), "{text}");
}

#[test]
fn h50_early_hints_reach_the_caller_and_are_not_stored() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), HOLD);
    let gateway = home.start();
    let mut call = Call::pay(gateway.address, "abc", BODY);
    let mut connection = upstream.accept();
    connection.read();
    connection.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
    let early = call.answer();
    assert_eq!((early.status(), early.header("link")), (103, Some("</a.css>; rel=preload")));
    connection.answer("201 Created", &[], b"paid");
    assert_eq!(call.answer().status(), 201);
    let replay = pay(gateway.address, "abc", BODY);
    assert!(replay.is_replay());
    assert_eq!((replay.status(), replay.header("link")), (201, None));
}

#[test]
fn a_host_that_is_none_is_refused() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let gateway = home.start();
    let asked = upstream.serve();
    let status = |host: &str| {
        let mut call = Call::connect(gateway.address);
        call.write(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        call.answer().status()
    };
    for wrong in ["a b", "a/b", "user@shop", "shop:80:80", "shop, other", "http://shop", "a?b"] {
        assert_eq!(status(wrong), 400, "{wrong}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    for right in ["shop", "shop:8080", "127.0.0.1:1", "[::1]:8080", "a_b.example", "xn--a-ecp.de"] {
        assert_eq!(status(right), 201, "{right}");
    }
}
