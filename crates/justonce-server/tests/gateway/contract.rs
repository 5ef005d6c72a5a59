//! Lines of the HTTP contract that need a real gateway between real connections.

use std::sync::atomic::Ordering;

use crate::client::{Call, pay, state, until};
use crate::stage::{BODY, started};

#[test]
fn h04_two_key_lines_are_refused() {
    let (_home, upstream, gateway) = started("");
    let answer = Call::pay_with(gateway.address, "a", BODY, "idempotency-key: a\r\n").answer();
    assert_eq!((answer.status(), answer.code().as_str()), (400, "key-invalid"));
    assert!(upstream.is_left_alone());
}

#[test]
fn h07_a_missing_key_is_explained_where_it_is_required() {
    let (_home, upstream, gateway) = started("[defaults]\nkey = 'required'\n");
    let mut call = Call::connect(gateway.address);
    call.write(b"POST /payments HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{}");
    let answer = call.answer();
    assert_eq!((answer.status(), answer.code().as_str()), (400, "key-missing"));
    let link = answer.header("link").unwrap();
    assert!(link.ends_with("rel=\"describedby\""), "{link}");
    let page = link.split(['<', '>']).nth(1).unwrap();
    let page = Call::get(gateway.address, page);
    assert_eq!(page.status(), 200);
    assert!(page.text().starts_with("# key-missing"), "{}", page.text());
    assert!(upstream.is_left_alone());
}

#[test]
fn h09_reads_and_upgrades_never_touch_the_store() {
    let (_home, upstream, gateway) = started("");
    let mut call = Call::connect(gateway.address);
    call.write(b"GET /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: k\r\n\r\n");
    let mut connection = upstream.accept();
    let request = connection.read();
    assert_eq!(request.header("idempotency-fence"), None);
    connection.answer("200 OK", &[], b"x");
    assert_eq!(call.answer().status(), 200);
    assert_eq!(state(gateway.address, "k"), "absent");
}

#[test]
fn h10_two_principals_with_one_key_never_meet() {
    let (_home, upstream, gateway) = started("");
    let asked = upstream.serve();
    let as_caller = |credential: &str| {
        let line = format!("authorization: Bearer {credential}\r\n");
        Call::pay_with(gateway.address, "k", &format!("{{\"for\":\"{credential}\"}}"), &line)
            .answer()
    };
    assert!(as_caller("alice").text().contains("alice"));
    assert!(as_caller("bob").text().contains("bob"));
    assert_eq!(pay(gateway.address, "k", BODY).text(), BODY);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn h15_of_many_concurrent_duplicates_one_reaches_the_upstream() {
    for crowd in [2, 50, 1000] {
        let (_home, upstream, gateway) = started("");
        let mut calls: Vec<Call> =
            (0..crowd).map(|_| Call::pay(gateway.address, "k", BODY)).collect();
        let mut connection = upstream.accept();
        connection.read();
        connection.answer("201 Created", &[], b"paid");
        let answers: Vec<_> = calls.iter_mut().map(Call::answer).collect();
        let paid = answers.iter().filter(|answer| answer.status() == 201).count();
        let busy = answers.iter().filter(|answer| answer.code() == "in-flight").count();
        assert_eq!(paid + busy, crowd, "{crowd}");
        assert!(paid >= 1);
        let fresh = answers.iter().filter(|answer| {
            answer.status() == 201 && answer.header("idempotent-replayed").is_none()
        });
        assert_eq!(fresh.count(), 1, "of {crowd} one is executed");
        assert!(upstream.is_left_alone(), "the service was asked again");
    }
}

#[test]
fn h16_duplicates_that_wait_get_the_outcome() {
    let (_home, upstream, gateway) = started("[defaults]\non_concurrent = 'wait 20s'\n");
    let mut first = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    let mut second = Call::pay(gateway.address, "k", BODY);
    until(
        "a waiter",
        || Call::get(gateway.admin, "/metrics").text(),
        |text| text.contains("idempotency_waiters{route=\"default\"} 1"),
    );
    connection.answer("201 Created", &[], b"paid");
    let (first, second) = (first.answer(), second.answer());
    assert_eq!((first.status(), second.status()), (201, 201));
    assert_eq!(first.body, second.body);
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
}

#[test]
fn h25_the_upstream_learns_key_attempt_and_fence() {
    let (_home, upstream, gateway) = started("");
    let forged = "idempotency-attempt: 99\r\nidempotency-fence: 99\r\n";
    let mut call = Call::pay_with(gateway.address, "\"a-key\"", BODY, forged);
    let mut connection = upstream.accept();
    let request = connection.read();
    assert_eq!(request.header("idempotency-key"), Some("a-key"));
    assert_eq!(request.header("idempotency-attempt"), Some("1"));
    let fences = request.headers.iter().filter(|(name, _)| name == "idempotency-fence");
    let fences: Vec<_> = fences.map(|(_, value)| value.as_str()).collect();
    assert!(fences.len() == 1 && fences != ["99"], "{fences:?}");
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    connection.answer("201 Created", &[("idempotency-outcome", "final")], b"paid");
    let answer = call.answer();
    assert_eq!(answer.header("idempotency-outcome"), None);
    assert_eq!(answer.header("idempotency-key-lifetime"), Some("86400"));
}

#[test]
fn h37_the_state_of_a_key_can_be_asked_for() {
    let (_home, upstream, gateway) = started("");
    assert_eq!(state(gateway.address, "k"), "absent");
    let mut call = Call::pay(gateway.address, "k", BODY);
    let mut connection = upstream.accept();
    connection.read();
    assert_eq!(state(gateway.address, "k"), "in_progress");
    connection.answer("201 Created", &[], b"secret");
    call.answer();
    let told = Call::get(gateway.address, "/.well-known/idempotency/k?path=/payments");
    assert!(told.text().contains("completed") && !told.text().contains("secret"), "{told:?}");
    // Another caller learns nothing.
    let mut stranger = Call::connect(gateway.address);
    stranger.write(
        b"GET /.well-known/idempotency/k?path=/payments HTTP/1.1\r\nhost: t\r\n\
          authorization: Bearer eve\r\n\r\n",
    );
    assert!(stranger.answer().text().contains("absent"));
}
