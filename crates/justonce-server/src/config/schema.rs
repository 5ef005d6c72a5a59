//! Every setting there is, by name and place. Names are checked against this; what the values mean
//! is the business of `resolve`.

use super::nearest::did_you_mean;
use super::report::Report;
use super::tree::{Member, Table, Value};

/// What every variable of ours begins with.
pub(super) const VARIABLE_PREFIX: &str = "JUSTONCE_";
/// The variable that names the file.
pub(super) const CONFIG_VARIABLE: &str = "JUSTONCE_CONFIG";
/// The name of the list of routes.
pub(super) const ROUTES: &str = "route";
/// The name of the table for all routes.
pub(super) const DEFAULTS: &str = "defaults";

/// A setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
}

/// What a setting is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// One value, or a list of them.
    Plain,
    /// Settings of its own.
    Table(&'static [Field]),
    /// Entries with free names.
    Map,
    /// A list of tables: `[[route]]`.
    Tables,
}

const fn plain(name: &'static str) -> Field {
    Field { name, shape: Shape::Plain }
}

const fn table(name: &'static str, fields: &'static [Field]) -> Field {
    Field { name, shape: Shape::Table(fields) }
}

/// The settings of the gateway.
pub(super) const TOP: &[Field] = &[
    plain("listen"),
    plain("admin"),
    plain("admin_token"),
    plain("admin_token_file"),
    plain("callback_token"),
    plain("callback_token_file"),
    plain("upstream"),
    plain("store"),
    plain("grace"),
    plain("problems_base"),
    table("tls", &[plain("cert"), plain("key")]),
    table("upstream_tls", &[plain("ca")]),
    table("log", &[plain("level"), plain("format")]),
    table(
        "limits",
        &[
            plain("request_body"),
            plain("stored_response_body"),
            plain("connections"),
            plain("header_bytes"),
            plain("concurrent"),
            plain("waiters"),
        ],
    ),
    table(
        "timeouts",
        &[
            plain("connect"),
            plain("response"),
            plain("idle"),
            plain("upstream_idle"),
            plain("header"),
            plain("body"),
            plain("store"),
        ],
    ),
    table("redis", &[plain("prefix"), plain("ca"), plain("wait_replicas"), plain("wait_timeout")]),
    table("postgres", &[plain("schema"), plain("connections"), plain("migrate")]),
    table("near_cache", &[plain("enabled"), plain("bytes"), plain("age")]),
    table(
        "breaker",
        &[
            plain("enabled"),
            plain("window"),
            plain("min_requests"),
            plain("failure_ratio"),
            plain("open_for"),
        ],
    ),
    table("completer", &[plain("every"), plain("at_once")]),
    table(DEFAULTS, SHARED),
    Field { name: ROUTES, shape: Shape::Tables },
];

/// What `[defaults]` and `[[route]]` may both have.
pub(super) const SHARED: &[Field] = &[
    plain("key"),
    plain("key_presence"),
    plain("key_syntax"),
    plain("key_min"),
    plain("key_max"),
    plain("key_format"),
    plain("path_escapes"),
    plain("scope"),
    table(
        "fingerprint",
        &[plain("body"), plain("ignore"), plain("only"), plain("headers"), plain("query")],
    ),
    plain("on_concurrent"),
    plain("max_wait"),
    plain("on_lapsed"),
    plain("on_store_down"),
    Field { name: "store_status", shape: Shape::Map },
    plain("lease"),
    plain("lease_cap"),
    plain("retention"),
    plain("after_retention"),
    plain("response_timeout"),
    plain("request_body"),
    plain("stored_response_body"),
    plain("unframed"),
    plain("drop_headers"),
    plain("keep_headers"),
    plain("complete"),
    plain("complete_without"),
    table(
        "probe",
        &[
            plain("request"),
            plain("headers"),
            plain("happened"),
            plain("did_not_happen"),
            plain("outcome"),
            plain("status"),
            plain("unique_keys"),
            plain("after"),
            plain("release_after"),
            plain("pause"),
            plain("pause_max"),
            plain("timeout"),
            plain("at_once"),
        ],
    ),
];

/// What only `[[route]]` has.
const ROUTE_ONLY: &[Field] = &[plain("match"), plain("name")];

/// Every setting by its full name, as the reference must list it: `listen`, `tls.cert`,
/// `defaults.retention`, `route.match`.
#[must_use]
pub fn documented_keys() -> Vec<String> {
    let mut keys = Vec::new();
    list(TOP, "", &mut keys);
    list(ROUTE_ONLY, "route.", &mut keys);
    list(SHARED, "route.", &mut keys);
    keys
}

fn list(fields: &[Field], prefix: &str, keys: &mut Vec<String>) {
    for field in fields {
        match field.shape {
            Shape::Plain | Shape::Map => keys.push(format!("{prefix}{}", field.name)),
            Shape::Table(inner) => list(inner, &format!("{prefix}{}.", field.name), keys),
            Shape::Tables => {}
        }
    }
}

/// The name of the variable of every setting outside routes, and `JUSTONCE_CONFIG`.
#[must_use]
pub fn variable_names() -> Vec<String> {
    let outside = documented_keys().into_iter().filter(|key| !key.starts_with("route."));
    let mut names: Vec<String> = outside.map(|key| variable(&key)).collect();
    names.push(CONFIG_VARIABLE.to_owned());
    names
}

/// The variable of a setting outside routes.
pub(super) fn variable(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// Reports every name in the tree that is no setting, and every table that is none.
pub(super) fn check_names(top: &Table, report: &mut Report) {
    check_table(top, &[TOP], "", report);
}

fn check_table(table: &Table, fields: &[&'static [Field]], place: &str, report: &mut Report) {
    for (name, member) in table {
        let Some(field) = fields.iter().copied().flatten().find(|field| field.name == name) else {
            unknown(name, member, fields, place, report);
            continue;
        };
        match (field.shape, &member.node.value) {
            (Shape::Table(inner), Value::Table(table)) => {
                check_table(table, &[inner], &join(place, name), report);
            }
            (Shape::Table(inner), _) => {
                let some = inner.first().map_or("…", |field| field.name);
                let message = format!("expected a table, as in `{name} = {{ {some} = … }}`");
                report.at(&member.node.origin, message, None);
            }
            (Shape::Map, Value::Table(_)) | (Shape::Plain, _) => {}
            (Shape::Map, _) => {
                let message = format!("expected a table, as in `{name} = {{ \"5xx\" = … }}`");
                report.at(&member.node.origin, message, None);
            }
            (Shape::Tables, _) => check_routes(member, report),
        }
    }
}

fn check_routes(member: &Member, report: &mut Report) {
    match &member.node.value {
        Value::List(routes) => {
            for route in routes {
                match &route.value {
                    Value::Table(table) => {
                        check_table(table, &[ROUTE_ONLY, SHARED], "[[route]]", report);
                    }
                    _ => report.at(&route.origin, "expected a table for each route".into(), None),
                }
            }
        }
        Value::Table(_) => report.at(
            &member.name_origin,
            "routes are a list, also if there is one only".into(),
            Some("write `[[route]]`, with two brackets".into()),
        ),
        _ => report.at(
            &member.node.origin,
            "routes are written in the file, as `[[route]]` tables".into(),
            None,
        ),
    }
}

fn unknown(
    name: &str,
    member: &Member,
    fields: &[&'static [Field]],
    place: &str,
    report: &mut Report,
) {
    // Looking for near names takes its time, which a file full of wrong ones is not worth.
    if report.is_full() {
        return;
    }
    let inside = if place.is_empty() { String::new() } else { format!(" in {place}") };
    let names = || fields.iter().copied().flatten().map(|field| field.name);
    let help = did_you_mean(name, names()).or_else(|| elsewhere(name)).or_else(|| {
        let names: Vec<_> = names().collect();
        Some(format!("known here: {}", names.join(", ")))
    });
    let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    report.at(&member.name_origin, format!("unknown setting `{shown}`{inside}"), help);
}

/// The place where a name would be right.
fn elsewhere(name: &str) -> Option<String> {
    let has = |fields: &[Field]| fields.iter().any(|field| field.name == name);
    if has(TOP) {
        return Some(format!("`{name}` belongs at the top, above the first [table]"));
    }
    if has(ROUTE_ONLY) {
        return Some(format!("`{name}` belongs in a [[route]]"));
    }
    if has(SHARED) {
        return Some(format!("`{name}` belongs in [defaults] or in a [[route]]"));
    }
    let groups = TOP.iter().chain(SHARED).filter_map(|field| match field.shape {
        Shape::Table(inner) => Some((field.name, inner)),
        _ => None,
    });
    let mut homes = groups.filter(|(_, inner)| has(inner)).map(|(group, _)| group);
    homes.next().map(|group| format!("`{name}` belongs in `{group}`"))
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { format!("[{name}]") } else { format!("`{name}` of {place}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_variable_stands_for_one_setting() {
        let names = variable_names();
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        assert!(names.contains(&"JUSTONCE_DEFAULTS_FINGERPRINT_BODY".to_owned()));
        assert!(names.contains(&"JUSTONCE_LISTEN".to_owned()));
    }
}
