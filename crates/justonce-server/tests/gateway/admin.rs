//! The operators' side.

use crate::client::{Call, pay};
use crate::process::{Gateway, Home};
use crate::stage::BODY;
use crate::upstream::Upstream;

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
