//! gRPC's own library for Python, on both sides of the gateway.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::process::{Gateway, Home};
use justonce_testbed::python;

const ROUTE: &str = "upstreams.default.protocol = 'http2'\n\
                     [[route]]\nmatch = 'POST /shop.Payments/Pay'\nname = 'pay'\n\
                     key = 'required'\n";

/// The script in one of its roles. It ends with the test.
struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    fn start(arguments: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/clients/grpc_shop.py");
        let mut child = Command::new(python())
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("gRPC for Python is missing: run `cargo xtask services`");
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The shop, and a gateway in front of it.
struct Street {
    shop: Script,
    home: Home,
    gateway: Gateway,
}

impl Street {
    fn new() -> Self {
        Self::with(ROUTE)
    }

    fn with(config: &str) -> Self {
        let mut shop = Script::start(&["serve"]);
        let address: SocketAddr = shop.line().parse().expect("the shop's address");
        let home = Home::new();
        home.configure(address, config);
        let gateway = home.start();
        Self { shop, home, gateway }
    }

    /// What comes back from some calls.
    fn ask(&self, order: &Value) -> Value {
        let mut client = Script::start(&["call", &self.gateway.address.to_string()]);
        client.say(&order.to_string());
        serde_json::from_str(&client.line()).expect("an answer of the client")
    }

    fn pay(&self, key: &str, message: &str) -> Value {
        let order = json!({ "message": message, "metadata": [["idempotency-key", key]] });
        self.ask(&order)[0].take()
    }
}

/// A result without what a replay adds to the head.
fn content(result: &Value) -> Value {
    let added = ["idempotent-replayed", "cache-control"];
    let mut result = result.clone();
    let initial = result["initial"].as_array_mut().unwrap();
    initial.retain(|line| !added.contains(&line[0].as_str().unwrap()));
    result
}

fn is_replay(result: &Value) -> bool {
    result["initial"].as_array().unwrap().contains(&json!(["idempotent-replayed", "true"]))
}

fn metadata<'r>(result: &'r Value, name: &str) -> Option<&'r str> {
    let both = ["initial", "trailing"].map(|part| result[part].as_array().unwrap());
    let mut lines = both.into_iter().flatten();
    lines.find(|line| line[0] == name).and_then(|line| line[1].as_str())
}

#[test]
fn h52_a_unary_call_of_grpcs_own_library_is_executed_once() {
    let mut street = Street::new();
    let first = street.pay("abc", "ok");
    assert_eq!((&first["code"], is_replay(&first)), (&json!("OK"), false), "{first}");
    assert_eq!(metadata(&first, "x-ledger"), Some("1"));
    assert_eq!(metadata(&first, "x-seal-bin"), Some("00ff07"));
    assert_eq!(street.shop.line(), "paid ok abc 1");
    for _ in 0..2 {
        let second = street.pay("abc", "ok");
        assert!(is_replay(&second), "{second}");
        assert_eq!(content(&second), content(&first));
    }
    let declined = street.pay("def", "declined");
    assert_eq!(declined["code"], "FAILED_PRECONDITION");
    assert_eq!(declined["details"], "100% declined: zu wenig – leider");
    let again = street.pay("def", "declined");
    assert!(is_replay(&again));
    assert_eq!(content(&again), content(&declined));
    assert_eq!(street.shop.line(), "paid declined def 1");

    let other = street.pay("abc", "more");
    assert_eq!(other["code"], "FAILED_PRECONDITION");
    assert_eq!(metadata(&other, "idempotency-problem"), Some("key-mismatch"));
    assert!(other["details"].as_str().unwrap().contains("different request"), "{other}");
    let missing = street.ask(&json!({ "message": "ok" }))[0].take();
    assert_eq!(missing["code"], "INVALID_ARGUMENT");
    assert_eq!(metadata(&missing, "idempotency-problem"), Some("key-missing"));

    // A gateway that was killed left all of it on disk.
    let Street { shop, home, gateway } = street;
    gateway.kill();
    let gateway = home.start();
    let street = Street { shop, home, gateway };
    let replay = street.pay("abc", "ok");
    assert!(is_replay(&replay), "{replay}");
    assert_eq!(content(&replay), content(&first));
}

#[test]
fn h52_of_16_calls_at_once_one_reaches_the_shop() {
    let mut street = Street::new();
    let order = json!({ "message": "ok", "times": 16, "metadata": [["idempotency-key", "abc"]] });
    let results = street.ask(&order);
    let mut executed = 0;
    for result in results.as_array().unwrap() {
        match result["code"].as_str().unwrap() {
            "OK" => {
                executed += usize::from(!is_replay(result));
                assert_eq!(metadata(result, "x-ledger"), Some("1"));
            }
            code => {
                assert_eq!(code, "ABORTED", "{result}");
                assert_eq!(metadata(result, "idempotency-problem"), Some("in-flight"));
                assert!(metadata(result, "grpc-retry-pushback-ms").is_some(), "{result}");
            }
        }
    }
    assert_eq!((executed, results.as_array().unwrap().len()), (1, 16));
    assert_eq!(street.shop.line(), "paid ok abc 1");
    street.pay("def", "ok");
    assert_eq!(street.shop.line(), "paid ok def 1", "nothing between them");
}

#[test]
fn h52_the_retry_of_a_call_whose_reply_was_lost_gets_it() {
    let mut street = Street::new();
    let mut leaving = Script::start(&["cancel", &street.gateway.address.to_string()]);
    let order = json!({ "message": "wait", "metadata": [["idempotency-key", "abc"]] });
    leaving.say(&order.to_string());
    assert_eq!(street.shop.line(), "paid wait abc 1");
    leaving.say("");
    assert_eq!(leaving.line(), "cancelled");
    let busy = street.pay("abc", "wait");
    assert_eq!(busy["code"], "ABORTED", "{busy}");
    street.shop.say("");
    let order = json!({
        "message": "wait", "metadata": [["idempotency-key", "abc"], ["prefer", "wait=20"]],
    });
    let retry = street.ask(&order)[0].take();
    assert!(is_replay(&retry), "{retry}");
    assert_eq!((&retry["code"], metadata(&retry, "x-ledger")), (&json!("OK"), Some("1")));
}

#[test]
fn h52_a_shop_that_dies_in_the_middle_leaves_it_unknown() {
    let mut street = Street::new();
    let first = street.pay("abc", "die");
    assert_eq!(street.shop.line(), "paid die abc 1");
    assert_eq!(first["code"], "UNKNOWN", "{first}");
    assert_eq!(metadata(&first, "idempotency-problem"), Some("upstream-failed"));
    let retry = street.pay("abc", "die");
    assert_eq!(retry["code"], "UNKNOWN", "{retry}");
    assert_eq!(metadata(&retry, "idempotency-problem"), Some("outcome-unknown"));
    // Nobody listens there any more: that was not executed.
    let new = street.pay("def", "ok");
    assert_eq!(new["code"], "UNAVAILABLE", "{new}");
    assert_eq!(metadata(&new, "idempotency-problem"), Some("upstream-unreachable"));
}

#[test]
fn h52_streams_pass_through_the_gateway() {
    let street = Street::new();
    let answers: Vec<_> = (0..20).map(|number| format!("MESSAGE {number}")).collect();
    assert_eq!(street.ask(&json!({ "what": "chat" })), json!(answers));
    let numbers: Vec<_> = (0..30).map(|number| number.to_string()).collect();
    assert_eq!(street.ask(&json!({ "what": "watch" })), json!(numbers));
    assert_eq!(street.ask(&json!({ "what": "upload" })), json!("2000000"));
}

#[test]
fn h52_a_call_whose_gateway_died_is_sent_again_and_its_reply_kept_with_its_trailers() {
    let config = "completer.every = '100ms'\nupstreams.default.protocol = 'http2'\n[defaults]\n\
                  lease = '1s'\nscope = []\non_lapsed = 'rerun'\ncomplete = true\n";
    let mut street = Street::with(config);
    let mut leaving = Script::start(&["cancel", &street.gateway.address.to_string()]);
    let order = json!({ "message": "wait", "metadata": [["idempotency-key", "abc"]] });
    leaving.say(&order.to_string());
    assert_eq!(street.shop.line(), "paid wait abc 1");
    let Street { mut shop, home, gateway } = street;
    gateway.kill();
    let gateway = home.start();
    assert_eq!(shop.line(), "paid wait abc 2", "nobody asked for it again");
    // The first one is still there, too.
    shop.say("\n");
    let street = Street { shop, home, gateway };
    let order = json!({
        "message": "wait", "metadata": [["idempotency-key", "abc"], ["prefer", "wait=20"]],
    });
    let retry = street.ask(&order)[0].take();
    assert!(is_replay(&retry), "{retry}");
    assert_eq!(metadata(&retry, "x-ledger"), Some("2"));
    assert_eq!(metadata(&retry, "x-seal-bin"), Some("00ff07"));
}
