//! Every setting by its name and place. The names in all sources are checked against this.

use serde_json::Value as Json;

use super::declare::{Layer, Setting, Shape};
use super::nearest::did_you_mean;
use super::report::Report;
use super::settings::{GatewayLayer, IdentityLayer, JwtLayer, RouteTable, UpstreamTable};
use super::tree::{DEFAULTS, JWT, Member, ROUTES, Table, UPSTREAMS, Value};

/// What every variable of ours begins with.
pub(super) const VARIABLE_PREFIX: &str = "JUSTONCE_";
/// The variable that names the file.
pub(super) const CONFIG_VARIABLE: &str = "JUSTONCE_CONFIG";

/// What stands for a name of the user's choice in the full name of a setting.
const ANY_NAME: &str = "NAME";

/// The settings of the gateway.
pub(super) const TOP: &[Setting] = &[
    Setting::of("", "", Shape::Group(GatewayLayer::SETTINGS)),
    Setting::of(
        UPSTREAMS,
        "Upstreams by their names; `default` is that of routes which name none.",
        Shape::Named(UpstreamTable::SETTINGS),
    ),
    Setting::of(
        JWT,
        "Who issues the tokens (JWT) that identify callers, for `jwt:…` in `scope`.",
        Shape::Named(JwtLayer::SETTINGS),
    ),
    Setting::of(
        DEFAULTS,
        "What holds for all routes, and for every other POST and PATCH.",
        Shape::Table(RouteTable::SETTINGS),
    ),
    Setting::of(ROUTES, "Routes; the first one whose `match` fits counts.", Shape::Tables(ROUTE)),
];

/// What `[[route]]` has: also what `[defaults]` may have.
const ROUTE: &[Setting] = &[
    Setting::of("", "", Shape::Group(IdentityLayer::SETTINGS)),
    Setting::of("", "", Shape::Group(RouteTable::SETTINGS)),
];

/// The settings of a table, with those of its groups.
pub(super) fn members(settings: &'static [Setting]) -> Vec<&'static Setting> {
    let mut found = Vec::new();
    for setting in settings {
        match setting.shape {
            Shape::Group(group) => found.extend(members(group)),
            _ => found.push(setting),
        }
    }
    found
}

/// Every setting with its full name: `listen`, `tls.cert`, `defaults.retention`, `route.match`.
pub(super) fn declared() -> Vec<(String, &'static Setting)> {
    let mut found = Vec::new();
    list(TOP, "", &mut found);
    found
}

fn list(settings: &'static [Setting], prefix: &str, found: &mut Vec<(String, &'static Setting)>) {
    for setting in members(settings) {
        let name = format!("{prefix}{}", setting.name);
        match setting.shape {
            Shape::Table(inner) | Shape::Tables(inner) => list(inner, &format!("{name}."), found),
            Shape::Named(inner) => list(inner, &format!("{name}.{ANY_NAME}."), found),
            _ => found.push((name, setting)),
        }
    }
}

/// The full name of every setting, as the reference must list it.
#[must_use]
pub fn documented_keys() -> Vec<String> {
    declared().into_iter().map(|(name, _)| name).collect()
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
    format!("{VARIABLE_PREFIX}{}", by_variable(key).replace('.', "_").to_uppercase())
}

/// The full name of what a variable sets. Of the tables with free names that is the default one:
/// the name of another could not be told from the rest.
pub(super) fn by_variable(key: &str) -> String {
    key.replace(&format!(".{ANY_NAME}."), ".default.")
}

/// Reports every name in the tree that is no setting, and every table that is none.
pub(super) fn check_names(top: &Table, report: &mut Report) {
    check_table(top, TOP, "", report);
}

fn check_table(table: &Table, settings: &'static [Setting], place: &str, report: &mut Report) {
    let settings = members(settings);
    for (name, member) in table {
        let Some(setting) = settings.iter().find(|setting| setting.name == name) else {
            unknown(name, member, &settings, place, report);
            continue;
        };
        let mut no_table = |some: &str| {
            let message = format!("expected a table, as in `{name} = {{ {some} = … }}`");
            report.at(&member.node.origin, message, None);
        };
        match (setting.shape, &member.node.value) {
            (Shape::Table(inner), Value::Table(table)) => {
                check_table(table, inner, &join(place, name), report);
            }
            (Shape::Table(inner), _) => no_table(members(inner).first().map_or("…", |s| s.name)),
            (Shape::Named(inner), Value::Table(named)) => {
                check_named(named, name, inner, report);
            }
            (Shape::Named(_), _) => {
                let help = format!("write `[{name}.NAME]`, with a name of your choice");
                let message = format!("`{name}` is a table of tables");
                report.at(&member.node.origin, message, Some(help));
            }
            (Shape::Value(_) | Shape::Group(_), Value::Table(_)) => {}
            (Shape::Value(schema), _) if is_map(&schema()) => no_table("\"5xx\""),
            (Shape::Value(_) | Shape::Group(_), _) => {}
            (Shape::Tables(inner), _) => check_routes(member, inner, report),
        }
    }
}

fn check_named(named: &Table, place: &str, settings: &'static [Setting], report: &mut Report) {
    for (name, member) in named {
        match &member.node.value {
            Value::Table(table) => {
                check_table(table, settings, &format!("[{place}.{name}]"), report);
            }
            // A setting that lacks the name in front of it, or a name that lacks its settings.
            _ => {
                let help = format!("write `[{place}.NAME]`, with a name of your choice");
                let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
                let message = format!("expected a table, as in `[{place}.{shown}]`");
                report.at(&member.node.origin, message, Some(help));
            }
        }
    }
}

/// Whether a value is a table with free names.
fn is_map(schema: &Json) -> bool {
    schema.get("patternProperties").is_some()
}

fn check_routes(member: &Member, settings: &'static [Setting], report: &mut Report) {
    match &member.node.value {
        Value::List(routes) => {
            for route in routes {
                match &route.value {
                    Value::Table(table) => check_table(table, settings, "[[route]]", report),
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

fn unknown(name: &str, member: &Member, known: &[&Setting], place: &str, report: &mut Report) {
    // Looking for near names takes its time, which a file full of wrong ones is not worth.
    if report.is_full() {
        return;
    }
    let inside = if place.is_empty() { String::new() } else { format!(" in {place}") };
    let names = || known.iter().map(|setting| setting.name);
    let help = did_you_mean(name, names()).or_else(|| elsewhere(name)).or_else(|| {
        let names: Vec<_> = names().collect();
        Some(format!("known here: {}", names.join(", ")))
    });
    let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    report.at(&member.name_origin, format!("unknown setting `{shown}`{inside}"), help);
}

/// The place where a name would be right.
fn elsewhere(name: &str) -> Option<String> {
    let has = |settings| members(settings).iter().any(|setting| setting.name == name);
    if has(TOP) {
        return Some(format!("`{name}` belongs at the top, above the first [table]"));
    }
    if has(IdentityLayer::SETTINGS) {
        return Some(format!("`{name}` belongs in a [[route]]"));
    }
    if has(RouteTable::SETTINGS) {
        return Some(format!("`{name}` belongs in [defaults] or in a [[route]]"));
    }
    let tables = members(TOP).into_iter().chain(members(RouteTable::SETTINGS));
    let mut homes = tables.filter(|setting| match setting.shape {
        Shape::Table(inner) | Shape::Named(inner) => has(inner),
        _ => false,
    });
    homes.next().map(|table| match table.shape {
        Shape::Named(_) => format!("`{name}` belongs in `[{}.{ANY_NAME}]`", table.name),
        _ => format!("`{name}` belongs in `{}`", table.name),
    })
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
