//! The metrics: named as Prometheus wants them, there from the start, and documented.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use justonce_testbed::RedisServer;

use crate::gateway::contract::tokens::Issuer;
use crate::gateway::stage::{BODY, started};
use crate::support::client::{Call, pay, until};
use crate::support::process::{Gateway, Home};
use crate::support::upstream::Upstream;

const REFERENCE: &str = include_str!("../../../../../docs/metrics.md");

/// Routes of every kind: with a probe, with a completer, without keys.
const ROUTES: &str = "[defaults]\nlease = '1s'\n\
                      [[route]]\nmatch = 'POST /payments'\nname = 'payments'\n\
                      [route.probe]\nrequest = 'GET /payments?record={record}'\n\
                      happened = ['200 /status=paid']\n\
                      [[route]]\nmatch = 'POST /orders'\nname = 'a'\ncomplete = true\n\
                      on_lapsed = 'rerun'\n\
                      [upstreams.default.health]\npath = '/healthz'\ninterval = '1h'\n";

fn scrape(gateway: &Gateway) -> String {
    Call::get(gateway.admin, "/metrics").text()
}

/// The name and labels of a sample, without its value.
fn series(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

#[test]
fn promtool_has_nothing_to_say_about_a_scrape() {
    let (_home, upstream, gateway) = started(ROUTES);
    upstream.serve();
    assert_eq!(pay(gateway.address, "a", BODY).status(), 201);
    let text = scrape(&gateway);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is missing: run `cargo xtask services`");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let words = [said.stdout, said.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    assert!(said.status.success() && words.is_empty(), "{words}");
}

#[test]
fn every_series_is_there_before_anything_happens() {
    let (_home, upstream, gateway) = started(ROUTES);
    let before = series(&scrape(&gateway));
    upstream.serve();
    let to = gateway.address;
    assert_eq!(pay(to, "a", BODY).status(), 201);
    assert_eq!(pay(to, "a", BODY).status(), 201);
    assert_eq!(pay(to, "a", "{}").status(), 422);
    let refused = Call::send(to, "POST /payments", &[("idempotency-key", "\"")], BODY).answer();
    assert_eq!(refused.status(), 400);
    let passed = Call::send(to, "POST /payments", &[], BODY).answer().status();
    assert_eq!(passed, 201);
    for request in ["POST /orders", "POST /elsewhere"] {
        let answer = Call::send(to, request, &[("idempotency-key", "b")], BODY).answer();
        assert_eq!(answer.status(), 201);
    }
    let after = series(&scrape(&gateway));
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty(), "an increase from nothing is not seen: {new:#?}");
    for wanted in [
        r#"idempotency_requests_total{route="a",status="store_unavailable",duplicate="false"}"#,
        r#"idempotency_requests_total{route="a",status="breaker_open",duplicate="false"}"#,
        r#"idempotency_unknown_outcomes_total{route="a",reason="attempts_exhausted"}"#,
        r#"idempotency_probes_total{route="payments",result="completed"}"#,
        r#"idempotency_store_operations_total{operation="begin",status="error"}"#,
        r#"idempotency_store_operations_total{operation="health",status="error"}"#,
        r#"justonce_reloads_total{result="refused"}"#,
        r#"justonce_health_checks_total{upstream="default",result="failed"}"#,
        r#"justonce_worker_rounds_total{worker="prober",result="failed"}"#,
        "idempotency_store_up",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
        "process_cpu_seconds_total",
    ] {
        assert!(before.contains(wanted), "{wanted} is missing in {before:#?}");
    }
    assert!(before.iter().any(|name| name.starts_with("justonce_build_info{version=\"")));
}

#[test]
fn the_reference_lists_every_metric_and_no_other() {
    // With what only some gateways have: tokens, and TLS.
    let (home, upstream, issuer) = (Home::new(), Upstream::new(), Issuer::new());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = format!("[tls]\ncert = '{}'\nkey = '{}'\n", cert.display(), key.display());
    let routes = ROUTES.replace("[defaults]\n", "[defaults]\nscope = ['jwt:sub']\n");
    home.configure(upstream.address(), &format!("{}{tls}{routes}", issuer.table()));
    let gateway = home.start();
    let text = scrape(&gateway);
    let mut scraped: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for line in text.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            scraped.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        }
    }
    for sample in series(&text) {
        let (name, labels) = sample.split_once('{').unwrap_or((&sample, ""));
        let suffixes = ["_bucket", "_sum", "_count"];
        let bare = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        let name = bare.filter(|bare| scraped.contains_key(*bare)).unwrap_or(name);
        let labels = labels.trim_end_matches('}').split("\",").filter(|part| !part.is_empty());
        let names = labels.map(|part| part.split_once('=').unwrap().0.to_owned());
        let (_, known) = scraped.get_mut(name).unwrap_or_else(|| panic!("{name} has no type"));
        known.extend(names.filter(|label| label != "le"));
    }
    let documented: BTreeMap<String, (String, BTreeSet<String>)> = REFERENCE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [name, kind, labels, meaning] = cells[..] else { panic!("four columns: {line}") };
            assert!(!meaning.is_empty(), "{line}");
            let labels = labels.split(", ").filter(|label| *label != "none");
            let labels = labels.map(|label| label.trim_matches('`').to_owned()).collect();
            (name.trim_matches('`').to_owned(), (kind.to_owned(), labels))
        })
        // Only there where a store has a cache in front of it.
        .filter(|(name, _)| name != "idempotency_cache_lookups_total")
        .collect();
    assert_eq!(documented, scraped);
}

#[test]
fn what_only_a_store_that_is_away_knows_is_said_to_be_not_known() {
    let server = RedisServer::start().unwrap();
    let (home, upstream) = (Home::new(), Upstream::new());
    home.configure_on(upstream.address(), &server.url(), "");
    let gateway = home.start();
    let mut call = Call::pay(gateway.address, "a", BODY);
    let mut connection = upstream.accept();
    connection.read();
    drop(connection);
    assert_eq!(call.answer().status(), 502);
    let known = scrape(&gateway);
    assert!(known.contains("\nidempotency_store_up 1\n"), "{known}");
    assert!(known.contains("\nidempotency_unknown_waiting 1\n"), "{known}");
    server.kill();
    let away = scrape(&gateway);
    assert!(away.contains("\nidempotency_store_up 0\n"), "{away}");
    for name in ["unknown_waiting", "unknown_oldest", "store_records", "store_bytes"] {
        assert!(!away.contains(&format!("idempotency_{name}")), "{name} is not known:\n{away}");
    }
    let said = gateway.log_up_to("are not known");
    let wrong: Vec<_> = said.iter().filter(|line| line.contains("no unknown operations")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    server.restart().unwrap();
    let back = || scrape(&gateway);
    until("the store", back, |text| text.contains("\nidempotency_store_up 1\n"));
}

/// The value of a series, if it is there.
fn value(text: &str, series: &str) -> Option<f64> {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.map(|value| value.parse().unwrap())
}

#[test]
fn connections_and_the_memory_for_bodies_are_shown() {
    let (_home, upstream, gateway) = started("limits = { connections = 2 }");
    upstream.serve();
    let shown = |series: &str| value(&scrape(&gateway), series);
    assert_eq!(shown("justonce_connections_limit"), Some(2.0));
    let mut kept = Call::pay(gateway.address, "a", BODY);
    assert_eq!(kept.answer().status(), 201);
    let silent = Call::connect(gateway.address);
    until("both", || shown("justonce_connections{protocol=\"other\"}"), |open| *open == Some(1.0));
    assert_eq!(shown("justonce_connections{protocol=\"http1\"}"), Some(1.0));
    // The third is one too many.
    assert!(Call::connect(gateway.address).try_answer().is_none());
    assert_eq!(shown("justonce_connections_refused_total{reason=\"limit\"}"), Some(1.0));
    assert_eq!(shown("justonce_connections_accepted_total"), Some(3.0));
    assert_eq!(shown("justonce_connections_total{protocol=\"http1\"}"), Some(1.0));
    drop((kept, silent));
    until("none", || shown("justonce_connections{protocol=\"http1\"}"), |open| *open == Some(0.0));
    // A body that has not come to its end holds what has come, but for its first 16 KiB.
    assert_eq!(shown("idempotency_body_budget_used_bytes"), Some(0.0));
    let mut call = Call::connect(gateway.address);
    let head = "POST /payments HTTP/1.1\r\nhost: t\r\nidempotency-key: b\r\n";
    call.write(format!("{head}content-length: 200000\r\n\r\n").as_bytes());
    call.write(&[b'x'; 100_000]);
    let used = || shown("idempotency_body_budget_used_bytes");
    until("the body", used, |used| *used == Some(100_000.0 - 16.0 * 1024.0));
    assert_eq!(shown("idempotency_body_budget_limit_bytes"), Some(64.0 * 1024.0 * 1024.0));
    drop(call);
    until("its end", used, |used| *used == Some(0.0));
}
