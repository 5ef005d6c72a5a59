//! The reference and the example are complete and true.
//!
//! The tables of docs/config.md are written from the declarations. After a change run
//!
//! ```text
//! JUSTONCE_WRITE_FIXTURES=1 cargo test -p justonce-config
//! ```
//!
//! and read the difference. It fails if it had to write, so that CI never does.

use std::collections::BTreeSet;
use std::fmt::Write;

use clap::Args;
use justonce_config::{self as config, Flags, Reference, Settings};
use justonce_core::{DEFAULT_WAIT, Policy};

use crate::fixtures::WRITE;

const REFERENCE: &str = include_str!("../../../../docs/config.md");
const EXAMPLE: &str = include_str!("../../../../docs/justonce.example.toml");
const UPSTREAM: &str = "upstream = 'http://127.0.0.1:9000'";

/// A row of the reference.
#[derive(Debug)]
struct Row {
    /// The setting; those of routes begin with `route.`.
    key: String,
    default: Option<String>,
    example: String,
}

fn rows() -> Vec<Row> {
    let (gateway, rest) = REFERENCE.split_once("\n## Upstreams").expect("a chapter");
    let (upstreams, rest) = rest.split_once("\n## Tokens").expect("another chapter");
    let (tokens, routes) = rest.split_once("\n## Routes").expect("one more");
    let rows = |text: &str, prefix: &str| -> Vec<Row> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(|line| row(line, prefix)).collect()
    };
    let gateway = rows(gateway, "").into_iter();
    let named = rows(upstreams, "upstreams.NAME.").into_iter().chain(rows(tokens, "jwt.NAME."));
    gateway.chain(named).chain(rows(routes, "route.")).collect()
}

fn row(line: &str, prefix: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [key, default, _, example] = cells[..] else { panic!("four columns: {line}") };
    let code = |cell: &str| {
        let inner = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        inner.map(str::to_owned)
    };
    Row {
        key: format!("{prefix}{}", code(key).expect("a name")),
        default: code(default),
        example: code(example).expect("an example"),
    }
}

fn read(text: &str) -> Settings {
    config::parse(text, "a.toml").unwrap_or_else(|error| panic!("{error}\n\n{text}"))
}

/// A part of the reference that is written from the declarations, between its marks.
fn generated(part: &str, reference: &str) -> String {
    let settings = config::reference().into_iter();
    let settings: Vec<Reference> = match part {
        "gateway" => settings
            .filter(|row| !is_of_routes(row) && !is_of_upstreams(row) && !is_of_tokens(row))
            .collect(),
        "upstreams" => settings.filter(is_of_upstreams).collect(),
        "jwt" => settings.filter(is_of_tokens).collect(),
        "route" => {
            settings.filter(|row| ["route.match", "route.name"].contains(&&*row.name)).collect()
        }
        _ => settings.filter(|row| row.name.starts_with("defaults.")).collect(),
    };
    let mut text = "| setting | default | meaning | example |\n|---|---|---|---|\n".to_owned();
    for row in &settings {
        let name = row.name.trim_start_matches("route.").trim_start_matches("defaults.");
        let name = name.trim_start_matches("upstreams.NAME.").trim_start_matches("jwt.NAME.");
        let default = row.default.as_ref().map_or("none".to_owned(), |text| format!("`{text}`"));
        let (meaning, example) = (row.meaning.trim_end_matches('.'), &row.example);
        writeln!(text, "| `{name}` | {default} | {meaning} | `{example}` |").expect("a text");
    }
    if part == "gateway" {
        let live = settings.iter().filter(|row| row.is_live);
        let live: Vec<String> = live.map(|row| format!("`{}`", row.name)).collect();
        write!(
            text,
            "\nOf these, a reload applies {}; the others need a restart.\n",
            live.join(", ")
        )
        .expect("a text");
    }
    let (start, end) = (format!("<!-- {part}: generated -->\n"), "<!-- end -->");
    let (before, rest) = reference.split_once(&start).expect("a mark where it starts");
    let (_, after) = rest.split_once(end).expect("a mark where it ends");
    format!("{before}{start}{text}{end}{after}")
}

fn is_of_routes(row: &Reference) -> bool {
    row.name.starts_with("route.") || row.name.starts_with("defaults.")
}

fn is_of_upstreams(row: &Reference) -> bool {
    row.name.starts_with("upstreams.")
}

fn is_of_tokens(row: &Reference) -> bool {
    row.name.starts_with("jwt.")
}

/// What a setting needs beside it, so that it can be set alone.
fn beside(key: &str) -> String {
    let needed = [("issuer", "'i'"), ("audience", "'a'"), ("jwks", "'https://login/keys'")];
    let needed = needed.iter().filter(|(name, _)| key.strip_prefix("jwt.NAME.") != Some(name));
    match key.starts_with("jwt.") {
        false => String::new(),
        true => needed.map(|(name, value)| format!("jwt.default.{name} = {value}\n")).collect(),
    }
}

#[test]
fn a_reload_applies_everything_about_upstreams_and_tokens() {
    let rows = config::reference().into_iter();
    let rows = rows.filter(|row| is_of_upstreams(row) || is_of_tokens(row));
    assert!(rows.map(|row| assert!(row.is_live, "{}", row.name)).count() > 20);
}

#[test]
fn the_tables_of_the_reference_are_those_of_the_declarations() {
    let parts = ["gateway", "upstreams", "jwt", "route", "shared"];
    let now = parts.iter().fold(REFERENCE.to_owned(), |text, part| generated(part, &text));
    if now != REFERENCE && std::env::var_os(WRITE).is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
        std::fs::write(path, &now).expect("a writable file");
    }
    assert!(now == REFERENCE, "docs/config.md is not current: run the tests with {WRITE}=1");
}

#[test]
fn every_declared_default_is_what_an_empty_configuration_has() {
    let mut count = 0;
    for row in config::reference().iter().filter(|row| !row.name.starts_with("route.")) {
        let Some(default) = &row.default else { continue };
        let (name, more) = (row.name.replace("NAME", "default"), beside(&row.name));
        let plain = read(&format!("{UPSTREAM}\n{more}"));
        let set = read(&format!("{UPSTREAM}\n{more}{name} = {default}"));
        assert_eq!(set, plain, "{} = {default}", row.name);
        count += 1;
    }
    assert!(count > 60, "{count}");
}

#[test]
fn the_defaults_of_a_route_are_those_of_the_libraries() {
    let route = read(UPSTREAM).default_route;
    assert_eq!(route.policy, Policy::default());
    assert_eq!(route.max_wait, DEFAULT_WAIT);
    assert_eq!(route.request_body, justonce_http::DEFAULT_REQUEST_BYTES);
    assert_eq!(route.stored_response_body, justonce_http::DEFAULT_STORED_BYTES);
}

#[test]
fn the_reference_lists_every_setting_and_no_other() {
    let documented: BTreeSet<String> = rows().into_iter().map(|row| row.key).collect();
    let known = config::documented_keys();
    let known = known.into_iter().filter(|key| !key.starts_with("defaults."));
    assert_eq!(documented, known.collect::<BTreeSet<_>>());
}

#[test]
fn the_defaults_in_the_reference_are_those_in_force() {
    let mut count = 0;
    for row in rows() {
        let Some(default) = row.default else { continue };
        let more = beside(&row.key);
        let plain = read(&format!("{UPSTREAM}\n{more}"));
        let key = row.key.replace("route.", "defaults.").replace("NAME", "default");
        let said = read(&format!("{UPSTREAM}\n{more}{key} = {default}"));
        assert_eq!(said, plain, "{key} = {default}");
        count += 1;
    }
    assert!(count > 30, "{count}");
}

#[test]
fn the_examples_in_the_reference_are_right() {
    for row in rows() {
        let Row { key, example, .. } = &row;
        let more = match key.as_str() {
            "admin" => "admin_token = 'abcdefghijklmnopq'",
            "tls.cert" => "tls.key = 'k'",
            "tls.key" => "tls.cert = 'c'",
            "tls.client_ca" => "tls.cert = 'c'\ntls.key = 'k'",
            "tls.client_cert" => "tls.cert = 'c'\ntls.key = 'k'\ntls.client_ca = 'a'",
            "proxies.unix" => "listen = 'unix:/run/a.sock'",
            "proxies.proxy_protocol" => "proxies.trusted = ['10.0.0.0/8']",
            "route.probe.request" => "defaults.probe.happened = ['200']",
            "route.complete" => "defaults.on_lapsed = 'rerun'",
            "route.per_caller.burst" => "defaults.per_caller.rate = '50/s'",
            "route.response_timeout" => "defaults.lease_cap = '1h'",
            "route.upstream" => "upstreams.payments.urls = 'http://127.0.0.1:1'",
            "upstreams.NAME.tls.cert" => "upstreams.default.tls.key = 'k'",
            "upstreams.NAME.tls.key" => "upstreams.default.tls.cert = 'c'",
            _ => "",
        };
        let text = match key.as_str() {
            "upstream" => format!("upstream = {example}"),
            "upstreams.NAME.urls" => format!("upstreams.default.urls = {example}"),
            key if key.starts_with("upstreams.NAME.tls.") => {
                let key = key.replace("NAME", "default");
                format!("upstream = 'https://127.0.0.1:9000'\n{more}\n{key} = {example}")
            }
            "route.match" | "route.name" => {
                let name = key.trim_start_matches("route.");
                let other = if name == "name" { "match = 'POST /a'" } else { "" };
                format!("{UPSTREAM}\n[[route]]\n{name} = {example}\n{other}")
            }
            key => {
                let beside = beside(key);
                let key = key.replace("route.", "defaults.").replace("NAME", "default");
                format!("{UPSTREAM}\n{more}\n{beside}{key} = {example}")
            }
        };
        read(&text);
    }
}

#[test]
fn the_help_of_the_flags_shows_the_declared_defaults() {
    let help = Flags::augment_args(clap::Command::new("justonce")).render_help().to_string();
    for row in config::reference().iter().filter(|row| help.contains(&format!("--{} ", row.name))) {
        let default = row.default.as_ref().map(|text| text.trim_matches('"'));
        let shown = default.map_or_else(String::new, |text| format!("[default: {text}]"));
        assert!(help.contains(&shown), "--{}: {shown}", row.name);
    }
}

/// The names of the settings that stand in a text, with the table they stand in, and inline ones.
fn settings_in(text: &str) -> BTreeSet<String> {
    let mut table = String::new();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let line = line.strip_prefix("#: ").unwrap_or(line);
        if let Some(name) = line.strip_prefix('[') {
            table = format!("{}.", name.trim_matches(['[', ']']));
        } else if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#'))
        {
            let name = format!("{table}{}", name.trim());
            for inner in value.split(['{', ',']).filter_map(|part| part.split_once(" =")) {
                found.insert(format!("{name}.{}", inner.0.trim()));
            }
            found.insert(name);
        }
    }
    found
}

#[test]
fn the_example_is_right_and_names_every_setting() {
    read(EXAMPLE);
    let found = settings_in(EXAMPLE);
    for key in config::documented_keys() {
        // What belongs to all routes may stand in one of its two places.
        let places = match key.strip_prefix("defaults.").or(key.strip_prefix("route.")) {
            Some(name) => vec![format!("defaults.{name}"), format!("route.{name}")],
            None => vec![key.replace("NAME", "payments"), key.replace("NAME", "login")],
        };
        assert!(places.iter().any(|place| found.contains(place)), "{key} is not in the example");
    }
}

#[test]
fn what_the_example_leaves_open_is_right_too() {
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let open = lines.iter().enumerate().filter(|(_, line)| line.starts_with("#: "));
    let mut count = 0;
    for (at, line) in open {
        let setting = line.trim_start_matches("#: ");
        let mut changed = lines.clone();
        changed.splice(at..=at, [setting]);
        // The only list that stands beside its opposite.
        if setting.starts_with("only") {
            changed.retain(|line| !line.starts_with("ignore "));
        }
        if setting.starts_with("callback_token_file") {
            changed.retain(|line| !line.starts_with("callback_token ="));
        }
        if setting.starts_with("key_presence") {
            changed.retain(|line| !line.starts_with("key           = \"optional\""));
        }
        read(&changed.join("\n"));
        count += 1;
    }
    assert!(count > 5, "{count}");
}
