//! Each statement goes by the index that it is written for, whatever the server knows about the
//! table. A step does so even if it was planned while the table was empty.

use std::path::Path;

use justonce_postgres::migrate;
use justonce_testbed::{PostgresOptions, PostgresServer};

/// What our connections set.
const SESSION: &str = include_str!("../../sql/session_steps.sql");
const READS: &str = include_str!("../../sql/session_reads.sql");
/// What lists and counts, with values for its parameters, and the indexes that it goes by.
const LISTINGS: [(&str, &str, &[&str]); 9] = [
    ("list", "('', NULL, 500, NULL, '')", &["records_pkey"]),
    ("list_one", PAGE, &["records_pkey"]),
    ("list_unknown", PAGE, &["records_claims_due", "records_unknown"]),
    ("list_in_progress", PAGE, &["records_claims_due", "records_claims_free"]),
    ("list_failed", PAGE, &["records_failed"]),
    (
        "size",
        "(1000)",
        &["records_claims_due", "records_claims_free", "records_failed", "records_unknown"],
    ),
    ("get", "('x')", &["records_pkey"]),
    ("commit_status", "('x')", &["records_pkey"]),
    // A sample of bounded size: it goes by no index.
    ("stats", "(1)", &[]),
];
const PAGE: &str = "('', NULL, 500, NULL)";
/// Steps that are plain statements: all by the primary key.
const STEPS: [&str; 4] = ["begin", "begin_batch", "complete", "complete_batch"];
/// Statements that only call a function or ask the catalogue. What is inside of the functions is
/// measured, not read.
const CALLS: [&str; 14] = [
    "begin_read_only",
    "checkpoint",
    "checkpoint_within",
    "complete_by_rules",
    "complete_within",
    "terminate_backend",
    "forget_messages",
    "expire_or_erase",
    "peek",
    "remember_message",
    "ready",
    "sweep",
    "watch",
    "write",
];

fn statement(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let read = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.sql"))).unwrap();
    read(name)
        .replace("@columns@", &read("list_columns"))
        .replace("@page@", &read("list_page"))
        .replace("@empty@", "'\\x00'::bytea")
        .replace("@schema@", "justonce")
        .replace("@channel@", "'justonce'")
}

/// The plan of a statement, as one text.
fn plan(server: &PostgresServer, name: &str, session: &str, given: &str) -> String {
    let sql = statement(name);
    let asked =
        format!("{SESSION}; {session}; PREPARE asked AS {sql}; EXPLAIN (COSTS OFF) EXECUTE asked");
    server.psql(&format!("{asked}{given}")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// As many values that are nothing as a statement has parameters: for a plan that looks at none.
fn nothing(name: &str) -> String {
    let sql = statement(name);
    let most = (1..=30).rev().find(|number| sql.contains(&format!("${number}"))).unwrap_or(0);
    format!("({})", vec!["NULL"; most].join(", "))
}

fn indexes(plan: &str) -> Vec<String> {
    let mut names: Vec<_> = plan
        .lines()
        .filter_map(|line| line.split_once(" using ").map(|(_, rest)| rest))
        .filter_map(|rest| rest.split(' ').next().map(ToOwned::to_owned))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[tokio::test]
async fn every_statement_goes_by_its_index() {
    let settings = vec![("autovacuum".to_owned(), "off".to_owned())];
    let options = PostgresOptions { settings, ..PostgresOptions::default() };
    let server = PostgresServer::start(options).unwrap();
    migrate::apply(&server.url(), "justonce").await.unwrap();
    let fill = "INSERT INTO justonce.records (id, state, fence, attempt, changed_at, due, \
                created_at, scope, key, fingerprint, outcome, expires_at) \
                SELECT sha256(n::text::bytea), 'completed', n, 1, 1, 2, 1, '', 'k', '\\x00', \
                'x', 2 FROM generate_series(1, 50000) AS n";
    let stages = ["SELECT", "ANALYZE justonce.records", fill, "ANALYZE justonce.records"];
    for (number, stage) in stages.into_iter().enumerate() {
        server.psql(stage).unwrap();
        for name in STEPS {
            let plan = plan(&server, name, "", &nothing(name));
            assert_eq!(indexes(&plan), ["records_pkey"], "{name} after {stage}:\n{plan}");
            assert!(!plan.contains("Seq Scan"), "{name} after {stage}:\n{plan}");
        }
        for (name, given, expected) in LISTINGS {
            let plan = plan(&server, name, READS, given);
            assert!(!plan.contains("Seq Scan"), "{name} after {stage}:\n{plan}");
            // While the table is empty, all indexes are alike.
            if number >= 2 {
                assert_eq!(indexes(&plan), expected, "{name} after {stage}:\n{plan}");
            }
        }
    }
}

/// A new statement must say where it belongs.
#[test]
fn every_statement_is_known_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        let is_read = LISTINGS.iter().any(|(known, ..)| *known == name);
        let is_part = name.starts_with("session") || name == "list_columns" || name == "list_page";
        let is_step = STEPS.contains(&&*name) || CALLS.contains(&&*name);
        assert!(is_read || is_part || is_step, "sql/{name}.sql is not known here");
    }
}
