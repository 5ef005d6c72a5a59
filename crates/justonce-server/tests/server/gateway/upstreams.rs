//! Several upstreams, and which of them a request goes to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::signal::Signal;

use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay, state, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

/// A service that answers everything, and how often it was asked.
struct Service {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Service {
    fn start() -> Self {
        let upstream = Upstream::new();
        Self { address: upstream.address(), asked: upstream.serve() }
    }

    /// How often it was asked since the last call.
    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

/// An upstream with this name.
fn named(name: &str, address: SocketAddr, more: &str) -> String {
    format!("[upstreams.{name}]\nurls = 'http://{address}'\n{more}\n")
}

const PAYMENTS: &str = "[[route]]\nmatch = 'POST /payments/*'\nname = 'payments'\n\
                        upstream = 'payments'\n";

fn status(gateway: &Gateway, request: &str) -> u16 {
    Call::send(gateway.address, request, &[], "").answer().status()
}

#[test]
fn requests_go_to_the_upstream_of_their_route_protected_or_not() {
    let (rest, payments, files) = (Service::start(), Service::start(), Service::start());
    let home = Home::new();
    let routes = "[[route]]\nmatch = 'PUT /files/*'\nupstream = 'files'\nkey = 'off'\n";
    let text = [
        named("payments", payments.address, ""),
        named("files", files.address, ""),
        PAYMENTS.to_owned(),
        routes.to_owned(),
    ];
    home.configure(rest.address, &text.concat());
    let gateway = home.start();
    for (request, expected) in [
        ("POST /payments/1", &payments),
        ("GET /payments/1", &payments),
        ("GET //payments/./1", &payments),
        ("DELETE /payments/1", &payments),
        ("PUT /files/a", &files),
        ("HEAD /files/a", &files),
        ("POST /files/a", &rest),
        ("POST /orders", &rest),
        ("GET /", &rest),
        ("GET /payments", &rest),
    ] {
        let key = request.replace(' ', "");
        for headers in [&[("idempotency-key", key.as_str())][..], &[]] {
            let answer = Call::send(gateway.address, request, headers, "").answer();
            assert_eq!(answer.status(), 201, "{request}");
        }
        let asked = [&rest, &payments, &files].map(|service| service.asked() > 0);
        let wanted = [&rest, &payments, &files].map(|service| service.address == expected.address);
        assert_eq!(asked, wanted, "{request}");
    }
    // A duplicate is answered without asking anyone.
    let key = [("idempotency-key", "POST/payments/1")];
    assert!(Call::send(gateway.address, "POST /payments/1", &key, "").answer().is_replay());
}

#[test]
fn a_reload_under_load_changes_upstreams_and_loses_nothing() {
    let (rest, first, second) = (Service::start(), Upstream::new(), Service::start());
    let home = Home::new();
    let to = |address| named("payments", address, "") + PAYMENTS;
    home.configure(rest.address, &to(first.address()));
    let gateway = home.start();
    // One request is under way at the first while the routes change.
    let key = [("idempotency-key", "slow")];
    let mut slow = Call::send(gateway.address, "POST /payments/1", &key, BODY);
    let mut held = first.accept();
    held.read();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(pay(gateway.address, &format!("k{count}"), BODY).status(), 201);
                count += 1;
            }
            count
        });
        home.configure(rest.address, &to(second.address));
        gateway.log_line("new routes are in force");
        assert_eq!(status(&gateway, "GET /payments/1"), 201);
        assert_eq!(second.asked(), 1);
        for _ in 0..5 {
            gateway.signal(Signal::SIGHUP);
            gateway.log_line("new routes are in force");
        }
        stop.store(true, Ordering::SeqCst);
        assert!(load.join().unwrap() > 0);
    });
    held.answer("201 Created", &[], b"slow");
    assert_eq!(slow.answer().text(), "slow");
    let again = Call::send(gateway.address, "POST /payments/1", &key, BODY).answer();
    assert!(again.is_replay() && again.text() == "slow");
}

#[test]
fn the_default_upstream_changes_with_a_reload_too() {
    let (one, other) = (Service::start(), Service::start());
    let home = Home::new();
    home.configure(one.address, "");
    let gateway = home.start();
    assert_eq!(pay(gateway.address, "a", BODY).status(), 201);
    home.configure(other.address, "");
    gateway.log_line("new routes are in force");
    assert_eq!(pay(gateway.address, "b", BODY).status(), 201);
    assert_eq!((one.asked(), other.asked()), (1, 1));
}

#[test]
fn an_upstream_that_does_not_exist_leaves_the_old_ones_in_force() {
    let (rest, payments) = (Service::start(), Service::start());
    let home = Home::new();
    home.configure(rest.address, &(named("payments", payments.address, "") + PAYMENTS));
    let gateway = home.start();
    home.configure(rest.address, &(named("payment", payments.address, "") + PAYMENTS));
    gateway.log_line("the new configuration is wrong");
    gateway.log_line("did you mean `payment`?");
    assert_eq!(status(&gateway, "POST /payments/1"), 201);
    assert_eq!(payments.asked(), 1);
}

#[test]
fn an_upstream_that_is_away_blocks_only_its_own_routes() {
    let rest = Service::start();
    let away = Upstream::new();
    let address = away.address();
    drop(away);
    let home = Home::new();
    let breaker = "[breaker]\nopen_for = '1h'\n";
    home.configure(rest.address, &[breaker, &named("payments", address, ""), PAYMENTS].concat());
    let gateway = home.start();
    let pay_there = |key: &str| {
        Call::send(gateway.address, "POST /payments/1", &[("idempotency-key", key)], BODY).answer()
    };
    let mut number = 0;
    let blocked = until(
        "an open breaker",
        || {
            number += 1;
            pay_there(&format!("new-{number}"))
        },
        |answer| answer.status() == 503,
    );
    assert_eq!(blocked.code(), "upstream-unreachable");
    let asked = format!("/.well-known/idempotency/new-{number}?path=/payments/1");
    assert_eq!(Call::ask(gateway.address, &asked).json()["state"], "absent");
    assert_eq!(pay(gateway.address, "k", BODY).status(), 201);
    assert_eq!(state(gateway.address, "k"), "completed");
    let metrics = Call::get(gateway.admin, "/metrics").text();
    for (upstream, at, value) in [("default", rest.address, 0), ("payments", address, 1)] {
        let wanted = format!(
            "justonce_upstream_breaker_open{{upstream=\"{upstream}\",address=\"http://{at}\"}} \
             {value}\n"
        );
        assert!(metrics.contains(&wanted), "{wanted} is not in {metrics}");
    }
}

#[test]
fn a_probe_asks_the_upstream_of_its_route() {
    let (rest, payments) = (Service::start(), Upstream::new());
    let home = Home::new();
    let probe = "[route.probe]\nrequest = 'GET /paid?record={record}'\nhappened = ['200']\n\
                 after = '10ms'\npause = '10ms'\n";
    home.configure(
        rest.address,
        &[&named("payments", payments.address(), ""), PAYMENTS, probe].concat(),
    );
    let gateway = home.start();
    let key = [("idempotency-key", "k")];
    let mut call = Call::send(gateway.address, "POST /payments/1", &key, BODY);
    let mut connection = payments.accept();
    connection.read();
    drop(connection);
    assert_eq!(call.answer().code(), "upstream-failed");
    let mut connection = payments.accept();
    assert!(connection.read().start.starts_with("GET /paid?record="));
    connection.answer("200 OK", &[], b"paid");
    let again = || Call::send(gateway.address, "POST /payments/1", &key, BODY).answer();
    let replay = until("the outcome", again, |answer| answer.status() == 200);
    assert!(replay.is_replay() && replay.text() == "paid");
    assert_eq!(rest.asked(), 0);
}

#[test]
fn h48_the_host_is_a_setting_of_each_upstream() {
    let (client, own, name) = (Upstream::new(), Upstream::new(), Upstream::new());
    let home = Home::new();
    let text = [
        named("own", own.address(), "host = 'upstream'"),
        named("name", name.address(), "host = 'api.internal'"),
        "[[route]]\nmatch = 'POST /own'\nupstream = 'own'\n".to_owned(),
        "[[route]]\nmatch = 'POST /name'\nupstream = 'name'\n".to_owned(),
    ];
    home.configure(client.address(), &text.concat());
    let gateway = home.start();
    let expected = own.address().to_string();
    for (upstream, path, host) in
        [(&client, "/", "test"), (&own, "/own", &*expected), (&name, "/name", "api.internal")]
    {
        for (method, headers) in [("POST", &[("idempotency-key", "k")][..]), ("GET", &[])] {
            let request = format!("{method} {path}");
            let mut call = Call::send(gateway.address, &request, headers, "");
            let mut connection = upstream.accept();
            let seen = connection.read();
            assert_eq!(seen.header("host"), Some(host), "{request}");
            assert_eq!(seen.header("x-forwarded-host"), Some("test"), "{request}");
            connection.answer("200 OK", &[("connection", "close")], b"");
            assert_eq!(call.answer().status(), 200);
        }
        // The host that was asked for is what keys are compared by, whatever the upstream sees.
        let mut other = Call::connect(gateway.address);
        other.write(
            format!(
                "POST {path} HTTP/1.1\r\nhost: other\r\nidempotency-key: k\r\n\
                 content-length: 0\r\n\r\n"
            )
            .as_bytes(),
        );
        assert_eq!(other.answer().code(), "key-mismatch");
    }
}

/// Starts a service that speaks HTTP/2 in clear and nothing else, and says what it received.
fn http2_service() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service_fn(repeat));
                tokio::spawn(connection);
            }
        });
    });
    address
}

async fn repeat(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let said = format!("{} {:?}", request.uri(), request.headers().get("idempotency-attempt"));
    Ok(Response::new(Full::new(Bytes::from(said))))
}

#[test]
fn an_upstream_may_speak_http2() {
    let address = http2_service();
    let home = Home::new();
    home.configure(address, "[upstreams.default]\nprotocol = 'http2'\nhealth.path = '/'\n");
    let gateway = home.start();
    let first = pay(gateway.address, "k", BODY);
    assert_eq!(first.status(), 200);
    assert_eq!(first.text(), "http://test/payments Some(\"1\")");
    let again = pay(gateway.address, "k", BODY);
    assert!(again.is_replay() && again.body == first.body);
    assert_eq!(Call::ask(gateway.address, "/x").text(), "http://test/x None");
    let metrics = || Call::get(gateway.admin, "/metrics").text();
    let passed = "justonce_health_checks_total{upstream=\"default\",result=\"passed\"} 1\n";
    until("a check", metrics, |text| text.contains(passed));
}
