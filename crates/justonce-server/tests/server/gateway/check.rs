//! `justonce check`: what it explains, and what it does not let pass.

use std::net::TcpListener;
use std::process::Output;

use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};

use crate::gateway::stage::started;
use crate::support::process::{Home, justonce};

const UPSTREAM: &str = "upstream = 'http://127.0.0.1:9'\nadmin = 'off'\n";

fn check(text: &str, flags: &[&str]) -> Output {
    let home = Home::new();
    std::fs::write(home.config(), format!("{UPSTREAM}{text}")).unwrap();
    let mut command = justonce();
    command.current_dir(home.path()).arg("check").arg("--config").arg(home.config()).args(flags);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// It fails, and says this.
#[track_caller]
fn refused(text_of_file: &str, flags: &[&str], said: &str) {
    let output = check(text_of_file, flags);
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains(said), "{told}\n{output:?}");
}

#[track_caller]
fn passed(text_of_file: &str, flags: &[&str], said: &str) {
    let output = check(text_of_file, flags);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.contains(said), "{output:?}");
}

#[test]
fn the_schema_for_editors_needs_no_configuration() {
    let output = justonce().args(["check", "--schema"]).output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success());
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["timeouts"]["properties"]["idle"]["default"], "90s");
}

#[test]
fn a_route_that_is_never_reached_is_not_let_pass() {
    let routes = "[[route]]\nmatch = 'POST /payments/*'\nkey = 'optional'\n\
                  [[route]]\nmatch = 'POST /payments/{id}/refund'\nkey = 'required'\n";
    let said = "problem: route POST /payments/{id}/refund: never reached: `POST /payments/*` above \
                takes all its requests";
    refused(routes, &[], said);
    let spelled = "[[route]]\nmatch = 'POST /payments'\n[[route]]\nmatch = 'POST //payments/'\n";
    refused(spelled, &[], "this route is listed twice");
}

#[test]
fn a_mode_of_tls_that_leaves_it_open_is_not_let_pass() {
    for store in [
        "postgres://shop:secret@127.0.0.1:9/shop?sslmode=prefer",
        "tiered:redis://127.0.0.1:9,postgres://shop:secret@127.0.0.1:9/shop?sslmode=prefer",
    ] {
        let output = check("", &["--store", store]);
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains("sslmode=prefer would leave"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
    passed("", &["--store", "postgres://shop@127.0.0.1:9/shop?sslmode=verify-full"], "listens");
}

#[test]
fn files_that_are_missing_or_hold_something_else_are_not_let_pass() {
    let tls = "tls = { cert = 'no-cert.pem', key = 'no-key.pem' }\n";
    refused(tls, &[], "problem: `tls`: TLS cannot be offered with no-cert.pem");
    for name in ["admin_token_file", "callback_token_file"] {
        let text = format!("{name} = 'no-such-file'\n");
        let flags = ["--admin", "127.0.0.1:9"];
        refused(&text, &flags, &format!("problem: `{name}`: no-such-file cannot be used"));
    }
    refused("upstream_tls.ca = 'no-ca.pem'\n", &[], "`upstream_tls.ca`: no-ca.pem cannot be used");
    refused("redis.ca = 'justonce.toml'\n", &[], "there is no certificate in it");
    refused("store = 'file:justonce.toml'\n", &[], "`store`: justonce.toml is not a directory");
    let lost = "postgres://shop@127.0.0.1:9/shop?sslmode=verify-full&sslrootcert=no-root.pem";
    refused("", &["--store", lost], "no-root.pem");
}

#[test]
fn a_store_that_does_not_answer_is_told_if_it_is_asked() {
    // No socket listens on this port any more.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for store in [format!("redis://{gone}"), format!("postgres://shop@{gone}/shop")] {
        passed("", &["--store", &store], "The gateway listens");
        refused("", &["--store", &store, "--connect"], "problem: `store`: ");
    }
    passed("", &["--connect"], "was not opened: a gateway may be using it");
}

#[test]
fn a_store_that_answers_is_told_and_not_changed() {
    let redis = RedisServer::start_with(&[]).unwrap();
    passed("", &["--store", &redis.url(), "--connect"], "answers.");
    assert_eq!(redis.cli(&["DBSIZE"]).unwrap().trim(), "0");
    let postgres = PostgresServer::start(PostgresOptions::default()).unwrap();
    let flags = ["--store", &postgres.url(), "--connect"];
    passed("", &flags, "its tables are made or changed at the start");
    refused("postgres.migrate = false\n", &flags, "run `justonce migrate`");
    let made = "SELECT count(*) FROM pg_namespace WHERE nspname = 'justonce'";
    assert_eq!(postgres.psql(made).unwrap().trim(), "0");
    let tiered = format!("tiered:{},{}", redis.url(), postgres.url());
    passed("", &["--store", &tiered, "--connect"], "The cache in");
    redis.stop().unwrap();
    refused("", &["--store", &tiered, "--connect"], "problem: `store`: ");
}

#[test]
fn warnings_are_shown() {
    let text = "store = 'memory:'\n[defaults]\non_store_down = 'pass'\n";
    passed(text, &[], "warning: `store = \"memory:\"`: a restart forgets all keys");
    passed(text, &[], "warning: route default: `on_store_down = \"pass\"`");
}

#[test]
fn a_refreshed_token_is_said_to_be_a_new_caller() {
    let words = "A refreshed bearer token is a new caller";
    passed("", &[], words);
    passed("[defaults]\nscope = ['header:authorization']\n", &[], words);
    for scope in ["'cookie:session'", "'header:x-user', 'tenant:header:x-tenant'", ""] {
        let output = check(&format!("[defaults]\nscope = [{scope}]\n"), &[]);
        assert!(output.status.success());
        assert!(!text(&output.stdout).contains(words), "{scope}");
    }
    let (_home, _upstream, gateway) = started("");
    let line = gateway.log_line(words);
    assert!(line.contains("routes: default"), "{line}");
}
