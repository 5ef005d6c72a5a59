//! The circuit breaker: while it is open, replays answer and new operations get 503 unclaimed.

use std::sync::atomic::Ordering;

use crate::gateway::stage::BODY;
use crate::support::client::{pay, state, until};
use crate::support::process::Home;
use crate::support::upstream::Upstream;

#[test]
fn while_the_service_is_down_replays_go_on_and_nothing_new_is_claimed() {
    let home = Home::new();
    let upstream = Upstream::new();
    let address = upstream.address();
    home.configure(address, "[breaker]\nopen_for = '1s'");
    let gateway = home.start();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| pay(gateway.address, "before", BODY));
        let mut connection = upstream.accept();
        connection.read();
        connection.answer("201 Created", &[("connection", "close")], b"paid");
        assert_eq!(call.join().unwrap().status(), 201);
    });
    drop(upstream);
    let mut number = 0;
    let open = until(
        "an open breaker",
        || {
            number += 1;
            pay(gateway.address, &format!("new-{number}"), BODY)
        },
        |answer| answer.status() == 503,
    );
    assert_eq!(open.code(), "upstream-unreachable");
    assert!(open.header("retry-after").is_some());
    assert!(number <= 20, "it took {number} failures");
    assert_eq!(state(gateway.address, &format!("new-{number}")), "absent");
    let replay = pay(gateway.address, "before", BODY);
    assert_eq!((replay.status(), replay.text().as_str()), (201, "paid"));
    // The service comes back, and so does everything else.
    let asked = Upstream::at(address).serve();
    until("a closed breaker", || pay(gateway.address, "after", BODY), |a| a.status() == 201);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
