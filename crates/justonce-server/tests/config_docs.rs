//! The reference and the example are complete and true.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that cannot set the scene fails its test"
)]

use std::collections::BTreeSet;

use justonce_server::config::{self, Settings};

const REFERENCE: &str = include_str!("../../../docs/config.md");
const EXAMPLE: &str = include_str!("../../../docs/justonce.example.toml");
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
    let (gateway, routes) = REFERENCE.split_once("\n## Routes").expect("two chapters");
    let rows = |text: &str, prefix: &str| -> Vec<Row> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(|line| row(line, prefix)).collect()
    };
    rows(gateway, "").into_iter().chain(rows(routes, "route.")).collect()
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

#[test]
fn the_reference_lists_every_setting_and_no_other() {
    let documented: BTreeSet<String> = rows().into_iter().map(|row| row.key).collect();
    let known = config::documented_keys();
    let known = known.into_iter().filter(|key| !key.starts_with("defaults."));
    assert_eq!(documented, known.collect::<BTreeSet<_>>());
}

#[test]
fn the_defaults_in_the_reference_are_those_in_force() {
    let plain = read(UPSTREAM);
    let mut count = 0;
    for row in rows() {
        let Some(default) = row.default else { continue };
        let key = row.key.replace("route.", "defaults.");
        let said = read(&format!("{UPSTREAM}\n{key} = {default}"));
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
            "route.probe.request" => "defaults.probe.happened = ['200']",
            "route.complete" => "defaults.on_lapsed = 'rerun'",
            "route.response_timeout" => "defaults.lease_cap = '1h'",
            _ => "",
        };
        let text = match key.as_str() {
            "upstream" => format!("upstream = {example}"),
            "route.match" | "route.name" => {
                let name = key.trim_start_matches("route.");
                let other = if name == "name" { "match = 'POST /a'" } else { "" };
                format!("{UPSTREAM}\n[[route]]\n{name} = {example}\n{other}")
            }
            key => {
                let key = key.replace("route.", "defaults.");
                format!("{UPSTREAM}\n{more}\n{key} = {example}")
            }
        };
        read(&text);
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
            None => vec![key.clone()],
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
