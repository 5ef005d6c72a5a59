//! Outcomes that an operator gives up before their retention is over, on every store, with what is
//! kept near: `justonce keys expire` and `erase`.

use std::sync::atomic::Ordering;

use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};

use crate::gateway::stage::BODY;
use crate::gateway::unknown::stage::{Stage, admin_get};
use crate::support::client::{pay, state};
use crate::support::process::{Gateway, Home, justonce};
use crate::support::upstream::Upstream;

/// An age that no test reaches: whatever is gone, was dropped.
const ROUTES: &str = "near_cache.age = '1h'\n\
                      [[route]]\nmatch = 'POST /payments'\nname = 'payments'\n";
const REFUSED: &str = "after_retention = 'refuse'\n";

/// Runs a command on the one record of the gateway; what it printed, or its complaint.
fn keys(gateway: &Gateway, command: &str, more: &[&str]) -> Result<String, String> {
    let row = admin_get(gateway.admin, "/keys").json()["keys"][0].clone();
    let (id, fence) = (row["id"].as_str().unwrap().to_owned(), row["fence"].to_string());
    let admin = format!("http://{}", gateway.admin);
    let output = justonce()
        .args(["keys", command, &id[..16], "--fence", &fence, "--why", "a request of ada's"])
        .args(["--by", "bob", "--admin", &admin])
        .args(more)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    match output.status.code() {
        Some(0) => Ok(text(output.stdout)),
        code => Err(format!("{code:?} {}", text(output.stderr))),
    }
}

/// Pays once, has it replayed, and gives the outcome up in every way.
fn gives_up_on(store: Option<&str>) {
    let (home, upstream) = (Home::new(), Upstream::new());
    let configure = |routes: &str, upstream| match store {
        Some(store) => home.configure_on(upstream, store, routes),
        None => home.configure(upstream, routes),
    };
    let address = upstream.address();
    configure(ROUTES, address);
    let asked = upstream.serve();
    let gateway = home.start();
    let pay = |gateway: &Gateway| pay(gateway.address, "k", BODY);
    let paid = |gateway: &Gateway| {
        let before = asked.load(Ordering::SeqCst);
        let answer = pay(gateway);
        assert_eq!((answer.status(), answer.is_replay()), (201, false), "{store:?}");
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{store:?}");
        assert!(pay(gateway).is_replay(), "{store:?}");
    };
    paid(&gateway);
    let said = keys(&gateway, "expire", &[]).unwrap();
    assert!(said.contains("expired") && said.contains("used anew"), "{said}");
    let line = gateway.log_line("given up");
    assert!(line.contains("bob") && line.contains("ada's") && line.contains("expired"), "{line}");
    paid(&gateway);
    let said = keys(&gateway, "erase", &["--json"]).unwrap();
    assert!(said.contains(r#""result":"erased""#) && said.contains("absent"), "{said}");
    assert_eq!(state(gateway.address, "k"), "absent");

    configure(&format!("{ROUTES}{REFUSED}"), address);
    gateway.log_line("new routes are in force");
    paid(&gateway);
    let said = keys(&gateway, "expire", &[]).unwrap();
    assert!(said.contains("late requests are refused"), "{said}");
    assert_eq!(pay(&gateway).code(), "key-expired");
    assert_eq!(state(gateway.address, "k"), "expired");
    let again = keys(&gateway, "expire", &[]).unwrap_err();
    assert!(again.contains("Some(3)") && again.contains("record-not-found"), "{again}");
    let said = keys(&gateway, "erase", &[]).unwrap();
    assert!(said.contains("executes again"), "{said}");
    paid(&gateway);
}

#[test]
fn outcomes_are_given_up_on_embedded() {
    gives_up_on(None);
}

#[test]
fn outcomes_are_given_up_on_redis() {
    let server = RedisServer::start().unwrap();
    gives_up_on(Some(&server.url()));
}

#[test]
fn outcomes_are_given_up_on_postgres() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    gives_up_on(Some(&server.url()));
}

#[test]
fn outcomes_are_given_up_on_redis_in_front_of_postgres() {
    let front = RedisServer::start().unwrap();
    let truth = PostgresServer::start(PostgresOptions::default()).unwrap();
    gives_up_on(Some(&format!("tiered:{},{}", front.url(), truth.url())));
}

#[test]
fn what_has_not_ended_is_not_given_up() {
    let stage = Stage::new();
    let heard = stage.unknown("k");
    for command in ["expire", "erase"] {
        let error = keys(&stage.gateway, command, &[]).unwrap_err();
        assert!(error.contains("Some(3)") && error.contains("not-ended"), "{error}");
        assert!(error.contains("unknown"), "it says what it is: {error}");
        let path = format!("/keys/{}/{command}", heard.record);
        let said = serde_json::json!({ "fence": 4711, "by": "bob", "why": "w" });
        assert_eq!(stage.post(&path, &said).code(), "fence-old");
        let cut = format!("/keys/{}/{command}", &heard.record[..16]);
        assert_eq!(stage.post(&cut, &said).code(), "request-invalid");
    }
    assert_eq!(state(stage.gateway.address, "k"), "unknown");
}
