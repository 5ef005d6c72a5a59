//! The official SDKs of Stripe for Python and for Node, through the gateway to a stub of Stripe.
//!
//! An SDK makes the key and retries by itself: after a broken connection, after 409, after 5xx. The
//! stub looks at no key: whatever reaches it is charged.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use justonce_testbed::{node_packages, python};
use serde_json::{Value, json};

use crate::clients::relay::Relay;
use crate::support::client::{Call, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::{Connection, Message, Upstream};

const ROUTE: &str = "[[route]]\nmatch = 'POST /v1/charges'\nname = 'charges'\nkey = 'required'\n\
                     fingerprint = { body = 'form' }\n";
/// How often an SDK tries again.
const RETRIES: &str = "3";
/// Longer than anything takes, in seconds.
const PATIENT: &str = "25";

/// What the stub does once it has charged.
enum First {
    Answers,
    Drops,
    Fails,
    /// It answers when it is told to.
    Waits(Receiver<()>),
}

type Ledger = Arc<Mutex<Vec<Message>>>;

/// Stripe, in so far as it charges.
fn stripe(first: First) -> (SocketAddr, Ledger) {
    let upstream = Upstream::new();
    let (address, ledger) = (upstream.address(), Ledger::default());
    let first = Arc::new(Mutex::new(Some(first)));
    let kept = Arc::clone(&ledger);
    std::thread::spawn(move || {
        loop {
            let (connection, first) = (upstream.accept(), Arc::clone(&first));
            let ledger = Arc::clone(&kept);
            std::thread::spawn(move || charge(connection, &first, &ledger));
        }
    });
    (address, ledger)
}

fn charge(mut connection: Connection, first: &Mutex<Option<First>>, ledger: &Ledger) {
    while let Some(request) = connection.try_read() {
        assert_eq!(request.start, "POST /v1/charges HTTP/1.1");
        let number = {
            let mut ledger = ledger.lock().unwrap();
            ledger.push(request);
            ledger.len()
        };
        let id = format!("ch_{number}");
        let body = json!({ "id": id, "object": "charge", "amount": 2000, "paid": true });
        let body = body.to_string();
        let json = [("content-type", "application/json"), ("request-id", "req_1")];
        let act = first.lock().unwrap().take();
        match act {
            Some(First::Drops) => return,
            Some(First::Fails) => {
                let body = br#"{"error":{"message":"oops","type":"api_error"}}"#;
                connection.answer("500 Internal Server Error", &json, body);
                continue;
            }
            Some(First::Waits(told)) => told.recv().unwrap(),
            Some(First::Answers) | None => {}
        }
        connection.answer("200 OK", &json, body.as_bytes());
    }
}

fn started(first: First, more: &str) -> (Home, Gateway, Ledger) {
    let (address, ledger) = stripe(first);
    let home = Home::new();
    home.configure(address, &format!("{ROUTE}{more}"));
    let gateway = home.start();
    (home, gateway, ledger)
}

/// The SDKs, each with an application of a few lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sdk {
    Python,
    Node,
}

const SDKS: [Sdk; 2] = [Sdk::Python, Sdk::Node];

impl Sdk {
    /// An application charges once. What its SDK tells it.
    fn charge(self, address: SocketAddr, timeout: &str) -> Value {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/clients");
        let mut command = match self {
            Self::Python => Command::new(python()),
            Self::Node => Command::new("node"),
        };
        let script = if self == Self::Python { "charge.py" } else { "charge.cjs" };
        command
            .args([&format!("{scripts}/{script}"), &format!("http://{address}"), RETRIES, timeout])
            .env("NO_PROXY", "*")
            .env("NODE_PATH", node_packages());
        let output = command.output();
        let output = output.expect("an SDK of Stripe is missing: run `cargo xtask services`");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice(&output.stdout).expect(&errors)
    }

    /// The key that it has made.
    fn is_its_key(self, key: &str) -> bool {
        let uuid = match self {
            Self::Python => Some(key),
            Self::Node => key.strip_prefix("stripe-node-retry-"),
        };
        uuid.is_some_and(|uuid| uuid::Uuid::try_parse(uuid).is_ok())
    }
}

fn the_charge() -> Value {
    json!({ "id": "ch_1", "object": "charge", "amount": 2000 })
}

#[test]
fn a_charge_passes_with_the_sdks_own_key() {
    for sdk in SDKS {
        let (_home, gateway, ledger) = started(First::Answers, "");
        assert_eq!(sdk.charge(gateway.address, PATIENT), the_charge());
        let charged = ledger.lock().unwrap().clone();
        let [charged] = charged.try_into().unwrap();
        // The key comes bare, as the SDK sends it, and goes on bare.
        let key = charged.header("idempotency-key").unwrap().to_owned();
        assert!(sdk.is_its_key(&key), "{sdk:?} {key}");
        assert!(charged.text().contains("description=10%25"), "{}", charged.text());
        // The same form in another order and with other escapes is the same request.
        let form = charged.text();
        let mut fields: Vec<&str> = form.split('&').collect();
        fields.reverse();
        let again = fields.join("&").replace("tok_visa", "tok%5Fvisa");
        assert_ne!(form, again);
        let credential = charged.header("authorization").unwrap();
        let replay = post(gateway.address, &key, credential, &again);
        assert_eq!((replay.status(), replay.header("idempotent-replayed")), (200, Some("true")));
        assert!(replay.text().contains("ch_1"), "{replay:?}");
        let other = form.replace("2000", "2001");
        assert_eq!(post(gateway.address, &key, credential, &other).status(), 422);
        assert_eq!(ledger.lock().unwrap().len(), 1);
    }
}

fn post(address: SocketAddr, key: &str, credential: &str, body: &str) -> Message {
    let mut call = Call::connect(address);
    let head = format!(
        "POST /v1/charges HTTP/1.1\r\nhost: {address}\r\nidempotency-key: {key}\r\n\
         authorization: {credential}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    call.write(format!("{head}{body}").as_bytes());
    call.answer()
}

/// Whether the charge took effect is not known: the SDK's retries must not charge again.
#[test]
fn h22_retries_after_a_dropped_connection_never_charge_twice() {
    for sdk in SDKS {
        let (_home, gateway, ledger) = started(First::Drops, "");
        let relay = Relay::losing(0, gateway.address);
        let told = sdk.charge(relay.address, PATIENT);
        assert_eq!((&told["status"], &told["id"]), (&json!(409), &Value::Null), "{told}");
        assert_eq!(ledger.lock().unwrap().len(), 1);
        let log = gateway.log_line("outcome-unknown");
        assert!(log.contains("charges"), "the retries met the record: {log}");
    }
}

#[test]
fn h26_retries_after_a_500_never_charge_twice() {
    for sdk in SDKS {
        let (_home, gateway, ledger) = started(First::Fails, "");
        let told = sdk.charge(gateway.address, PATIENT);
        assert_eq!((&told["status"], &told["id"]), (&json!(409), &Value::Null), "{told}");
        assert_eq!(ledger.lock().unwrap().len(), 1);
        gateway.log_line("outcome-unknown");
    }
}

/// The same service with a route that keeps 5xx: the retries get the 500 again, as Stripe does.
#[test]
fn a_500_that_is_kept_is_what_the_retries_get() {
    for (sdk, error) in [(Sdk::Python, "APIError"), (Sdk::Node, "StripeAPIError")] {
        let (_home, gateway, ledger) = started(First::Fails, "store_status = { '5xx' = 'keep' }\n");
        let told = sdk.charge(gateway.address, PATIENT);
        assert_eq!(told, json!({ "error": error, "status": 500 }));
        assert_eq!(ledger.lock().unwrap().len(), 1);
    }
}

#[test]
fn h19_a_charge_that_takes_long_is_found_by_a_retry() {
    for sdk in SDKS {
        let (tell, told) = channel();
        let waits = "on_concurrent = 'wait 20s'\n";
        let (_home, gateway, ledger) = started(First::Waits(told), waits);
        let address = gateway.address;
        // The first try gives up after two seconds; its retry waits for the same charge.
        let application = std::thread::spawn(move || sdk.charge(address, "2"));
        until(
            "a retry",
            || Call::get(gateway.admin, "/metrics").text(),
            |text| text.contains("idempotency_waiters{route=\"charges\"} 1"),
        );
        tell.send(()).unwrap();
        assert_eq!(application.join().unwrap(), the_charge());
        assert_eq!(ledger.lock().unwrap().len(), 1);
    }
}

#[test]
fn h19_an_answer_that_was_lost_is_replayed_to_the_retry() {
    for sdk in SDKS {
        let (_home, gateway, ledger) = started(First::Answers, "");
        let relay = Relay::losing(2, gateway.address);
        assert_eq!(sdk.charge(relay.address, PATIENT), the_charge());
        assert_eq!(relay.connections(), 3, "two answers were lost, the third arrived");
        assert_eq!(ledger.lock().unwrap().len(), 1);
    }
}
