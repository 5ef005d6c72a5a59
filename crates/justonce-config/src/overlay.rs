//! Variables and flags, laid over the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file;
use super::flags::Flags;
use super::names::{
    CONFIG_VARIABLE, VARIABLE_PREFIX, by_variable, documented_keys, variable, variable_names,
};
use super::nearest::nearest;
use super::report::Report;
use super::service_links::is_service_link;
use super::tree::{Node, Origin, ROUTES, Table, Value, put};

/// The settings with free names, which variables can reach too.
const MAP: &str = "defaults.store_status";

/// Lays the variables over the tree. Those that only look like ours come back.
pub(super) fn variables(
    tree: &mut Table,
    variables: &BTreeMap<String, String>,
    report: &mut Report,
) -> Vec<String> {
    let mut ignored = Vec::new();
    let ours = variables.iter().filter(|(name, _)| name.starts_with(VARIABLE_PREFIX));
    let keys = documented_keys();
    for (name, text) in ours.filter(|(name, _)| *name != CONFIG_VARIABLE) {
        let origin = Origin::Variable(Arc::from(name.as_str()));
        match key_of(name, &keys) {
            Some(key) => lay(tree, &key, text, &origin, report),
            None if is_service_link(name, text) => ignored.push(name.clone()),
            None => unknown_variable(name, &origin, report),
        }
    }
    ignored
}

/// The setting that a variable stands for.
fn key_of(name: &str, keys: &[String]) -> Option<String> {
    let outside = keys.iter().filter(|key| !key.starts_with("route.") && *key != MAP);
    if let Some(key) = outside.into_iter().find(|key| variable(key) == name) {
        return Some(by_variable(key));
    }
    let status = name.strip_prefix(&variable(MAP))?.strip_prefix('_')?;
    Some(format!("{MAP}.{}", status.to_lowercase()))
}

fn unknown_variable(name: &str, origin: &Origin, report: &mut Report) {
    let names = variable_names();
    // Longer names have more letters in common by themselves: only what follows is compared.
    let rest = |name: &str| name.strip_prefix(VARIABLE_PREFIX).unwrap_or(name).to_owned();
    let rests: Vec<String> = names.iter().map(|name| rest(name)).collect();
    let near = nearest(&rest(name), rests.iter().map(String::as_str));
    let help = near.map(|rest| format!("did you mean `{VARIABLE_PREFIX}{rest}`?"));
    report.at(origin, "there is no such setting".into(), help);
}

/// Lays the flags over the tree.
pub(super) fn flags(tree: &mut Table, flags: &Flags, report: &mut Report) {
    let named = [("listen", &flags.listen), ("store", &flags.store), ("admin", &flags.admin)];
    for (name, text) in named {
        if let Some(text) = text {
            lay(tree, name, text, &flag(&format!("--{name}")), report);
        }
    }
    if !flags.upstream.is_empty() {
        let origin = flag("--upstream");
        let items = flags.upstream.iter().map(|text| {
            let (origin, value) = (origin.clone(), Value::Text(text.clone()));
            Node { origin, value }
        });
        let value = Value::List(items.collect());
        put(tree, &["upstream"], Node { origin, value });
    }
    for text in &flags.set {
        set(tree, text, report);
    }
}

fn flag(text: &str) -> Origin {
    Origin::Flag(Arc::from(text))
}

fn set(tree: &mut Table, text: &str, report: &mut Report) {
    let Some((name, value)) = text.split_once('=') else {
        let help = "as in `--set defaults.retention=72h`".to_owned();
        let origin = flag(&format!("--set {text}"));
        report.at(&origin, "expected a name, `=` and a value".into(), Some(help));
        return;
    };
    let name = name.trim();
    let origin = flag(&format!("--set {name}"));
    if name == ROUTES || name.split('.').next() == Some(ROUTES) {
        let help = "what holds for all of them is under `defaults`".to_owned();
        report.at(&origin, "routes are set in the file only".into(), Some(help));
    } else {
        lay(tree, name, value.trim(), &origin, report);
    }
}

fn lay(tree: &mut Table, key: &str, text: &str, origin: &Origin, report: &mut Report) {
    let node = if text.starts_with(['[', '{']) {
        match file::value(text, origin) {
            Ok(node) => node,
            Err(why) => return report.at(origin, format!("this is not TOML: {why}"), None),
        }
    } else {
        Node::loose(text, origin.clone())
    };
    let path: Vec<&str> = key.split('.').collect();
    put(tree, &path, node);
}
