//! The admin API: health, metrics, tokens.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use justonce_admin_api::{Client, Readiness};
use justonce_testbed::RedisServer;

use crate::gateway::stage::BODY;
use crate::support::client::{Call, pay, until};
use crate::support::process::{Gateway, Home, LIMIT};
use crate::support::upstream::Upstream;

#[tokio::test]
async fn the_client_of_the_api_says_whether_the_gateway_is_ready() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let gateway = home.start();
    let client = Client::new(&gateway.admin.to_string()).unwrap();
    let ready = Readiness { is_ready: true, detail: "ready".to_owned() };
    assert_eq!(client.readiness().await.unwrap(), ready);
}

#[test]
fn health_and_metrics_are_there() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "[[route]]\nmatch = 'POST /payments'\nname = 'payments'\n");
    upstream.serve();
    let gateway = home.start();
    assert_eq!(Call::get(gateway.admin, "/healthz").text(), "ok\n");
    assert_eq!(Call::get(gateway.admin, "/readyz").text(), "ready\n");
    assert_eq!(pay(gateway.address, "secret-key", BODY).status(), 201);
    assert_eq!(pay(gateway.address, "secret-key", BODY).status(), 201);
    assert_eq!(pay(gateway.address, "secret-key", "{}").status(), 422);
    let text = Call::get(gateway.admin, "/metrics").text();
    for line in [
        r#"idempotency_requests_total{route="payments",status="executed",duplicate="false"} 1"#,
        r#"idempotency_requests_total{route="payments",status="replayed",duplicate="true"} 1"#,
        r#"idempotency_replays_total{route="payments"} 1"#,
        r#"idempotency_mismatches_total{route="payments"} 1"#,
        r#"idempotency_processing_duration_seconds_count{route="payments"} 1"#,
        r#"idempotency_store_operations_total{operation="begin",status="claimed"} 1"#,
        r#"idempotency_store_records{state="completed"} 1"#,
        r#"idempotency_takeovers_total{route="payments"} 0"#,
        r#"idempotency_unknown_outcomes_total{route="payments",reason="lapsed"} 0"#,
        r#"idempotency_concurrent_attempts_total{route="payments"} 0"#,
        r#"idempotency_waiters{route="payments"} 0"#,
        "idempotency_ttl_expirations_total 0",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("secret-key"), "keys are no labels");
}

#[test]
fn the_log_has_hashes_of_keys_and_no_keys() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "[log]\nformat = 'json'\n");
    upstream.serve();
    let gateway = home.start();
    pay(gateway.address, "secret-key", BODY);
    let line = gateway.log_line("executed");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["outcome"], "executed");
    assert!(line["key"].as_str().unwrap().starts_with("Key(#"), "{line}");
    assert!(!line.to_string().contains("secret-key"), "{line}");
}

#[test]
fn strangers_need_a_token() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let open = |command: &mut std::process::Command| {
        command.args(["--admin", "0.0.0.0:0"]);
    };
    let mut command = home.command();
    open(&mut command);
    let refused = Gateway::start(command).err().unwrap();
    assert!(refused.contains("admin_token"), "{refused}");
    let mut command = home.command();
    open(&mut command);
    command.args(["--set", "admin_token=s3cret-token-of-operators"]);
    let gateway = Gateway::start(command).unwrap();
    let admin = ([127, 0, 0, 1], gateway.admin.port()).into();
    assert_eq!(Call::get(admin, "/metrics").status(), 401);
    let mut call = Call::connect(admin);
    call.write(
        b"GET /metrics HTTP/1.1\r\nhost: t\r\n\
          authorization: Bearer s3cret-token-of-operators\r\n\r\n",
    );
    assert_eq!(call.answer().status(), 200);
}

/// The status and the text of a question to the admin address, by its host.
fn asked(admin: SocketAddr, path: &str, host: &str, more: &str) -> (u16, String) {
    let mut call = Call::connect(admin);
    call.write(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n").as_bytes());
    let answer = call.answer();
    (answer.status(), answer.text())
}

#[test]
fn h53_health_is_open_and_everything_else_asks_for_the_token() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let mut command = home.command();
    command.args(["--set", "admin_token=s3cret-token-of-operators"]);
    let gateway = Gateway::start(command).unwrap();
    let shown = "authorization: Bearer s3cret-token-of-operators\r\n";
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        // Kubernetes asks by the address of the pod, others by any name.
        assert_eq!(asked(gateway.admin, path, "10.1.2.3:8081", ""), (200, text.to_owned()));
        assert_eq!(asked(gateway.admin, path, "justonce.shop.svc", ""), (200, text.to_owned()));
    }
    for path in ["/metrics", "/keys", "/sagas", "/.well-known/idempotency/errors/in-flight"] {
        assert_eq!(asked(gateway.admin, path, "localhost", "").0, 401, "{path}");
        assert_eq!(asked(gateway.admin, path, "localhost", shown).0, 200, "{path}");
    }
    assert_eq!(asked(gateway.admin, "/nothing", "localhost", "").0, 404);
}

#[test]
fn h53_without_a_token_a_foreign_host_sees_nothing_but_health() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let gateway = home.start();
    assert_eq!(asked(gateway.admin, "/healthz", "evil.example", "").0, 200);
    assert_eq!(asked(gateway.admin, "/readyz", "evil.example", "").0, 200);
    for path in ["/metrics", "/keys", "/sagas", "/.well-known/idempotency/errors/in-flight"] {
        assert_eq!(asked(gateway.admin, path, "evil.example", "").0, 403, "{path}");
        assert_eq!(asked(gateway.admin, path, "127.0.0.1:8081", "").0, 200, "{path}");
    }
}

#[test]
fn h53_what_is_wrong_with_the_store_is_told_to_operators_only() {
    let server = RedisServer::start().unwrap();
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure_on(upstream.address(), &server.url(), "[timeouts]\nstore = '300ms'\n");
    let mut command = home.command();
    command.args(["--set", "admin_token=s3cret-token-of-operators"]);
    let gateway = Gateway::start(command).unwrap();
    drop(server);
    let shown = "authorization: Bearer s3cret-token-of-operators\r\n";
    let away = || asked(gateway.admin, "/readyz", "pod", "");
    let told = until("the store is missed", away, |(status, _)| *status == 503);
    assert_eq!(told.1, "not ready\n");
    let (status, told) = asked(gateway.admin, "/readyz", "pod", shown);
    assert_eq!(status, 503);
    assert!(told.starts_with("the store: "), "{told}");
}

#[test]
fn half_open_heads_on_the_admin_address_are_cut_off() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "[timeouts]\nheader = '300ms'\n");
    let gateway = home.start();
    let mut open: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = TcpStream::connect(gateway.admin).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            // Nothing, or half a head.
            if number % 2 == 0 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: lo").unwrap();
            }
            stream
        })
        .collect();
    for stream in &mut open {
        let mut heard = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut heard);
        assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
    }
    assert_eq!(Call::get(gateway.admin, "/healthz").text(), "ok\n");
}

#[test]
fn h53_a_foreign_host_in_the_target_sees_nothing_either() {
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure(upstream.address(), "");
    let gateway = home.start();
    for head in [
        "GET http://evil.example/keys HTTP/1.1\r\n\r\n",
        "GET http://evil.example/keys HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET http://evil.example/metrics HTTP/1.0\r\n\r\n",
    ] {
        let mut call = Call::connect(gateway.admin);
        call.write(head.as_bytes());
        assert_eq!(call.answer().status(), 403, "{head}");
    }
    // `GET` of `/keys` at `evil.example`, as HTTP/2 says it.
    let mut stream = TcpStream::connect(gateway.admin).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let head = b"\x82\x86\x04\x05/keys\x41\x0cevil.example";
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    bytes.extend([0, 0, u8::try_from(head.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
    bytes.extend(head);
    stream.write_all(&bytes).unwrap();
    let status = loop {
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).unwrap();
        let mut payload = vec![0; usize::from(frame[2]) + 256 * usize::from(frame[1])];
        stream.read_exact(&mut payload).unwrap();
        if frame[3] == 1 {
            break payload[0];
        }
    };
    // 0x88 is `:status: 200` in the short form.
    assert_ne!(status, 0x88, "a foreign host is let in over HTTP/2");
}
