//! All routes, and how they stand to each other.

use std::time::Duration;

use justonce_http::Pattern;

use super::RouteSettings;
use super::jwt::Issuers;
use super::route::{self, RouteTable};
use super::upstreams::Upstreams;
use crate::covers::Reach;
use crate::declare::{Layer, settings};
use crate::invalid::{Invalid, Read};
use crate::kind::{custom, full_text, text};
use crate::report::Report;
use crate::section::{Section, Sourced};
use crate::tree::ROUTES;
use crate::tree::{Node, Origin, Value};

/// More routes than this are a generated file gone wrong; each request may look at all of them.
const MAX_ROUTES: usize = 1000;
/// Names are labels of metrics.
const MAX_NAME_CHARS: usize = 100;
/// The name of the route for everything else.
const DEFAULT_NAME: &str = "default";

settings! {
    /// What only a `[[route]]` says.
    layer IdentityLayer {
        /// Methods and a path; needed. `*` in the place of the methods is POST and PATCH; in the
        /// path `*` and `{name}` are one segment, and `*` at the end is everything below.
        pattern as "match": Pattern = custom(pattern),
            example "POST,PUT /shops/{shop}/orders/*";
        /// Its name in metrics and logs; without it, the text of `match`.
        name: String = custom(name), example "orders";
    }
}

/// The route for everything that no route is for.
pub(super) fn default_route(
    defaults: &RouteTable,
    timeout: &Sourced<Duration>,
    (upstreams, issuers): (&Upstreams, &Issuers),
    report: &mut Report,
) -> Option<RouteSettings> {
    let table = RouteTable::default().over(defaults);
    upstreams.check(table.route.upstream.as_ref(), report);
    issuers.check(table.route.scope.as_ref(), report);
    route::resolve(table, DEFAULT_NAME.to_owned(), None, timeout, report)
}

/// All routes, in the order of the file.
pub(super) fn routes(
    root: &Section<'_>,
    defaults: &RouteTable,
    timeout: &Sourced<Duration>,
    (upstreams, issuers): (&Upstreams, &Issuers),
    report: &mut Report,
) -> Option<Vec<RouteSettings>> {
    let Some(Value::List(nodes)) = root.node(ROUTES).map(|node| &node.value) else {
        return Some(Vec::new());
    };
    if let Some(node) = nodes.get(MAX_ROUTES) {
        report.at(&node.origin, format!("there are more than {MAX_ROUTES} routes"), None);
        return None;
    }
    let mut earlier = Vec::new();
    let mut routes = Vec::new();
    for node in nodes {
        let Value::Table(table) = &node.value else { continue };
        let section = Section::new(table);
        let table = RouteTable::read(&section, report).over(defaults);
        upstreams.check(table.route.upstream.as_ref(), report);
        issuers.check(table.route.scope.as_ref(), report);
        let Some((name, pattern)) = identity(&section, &node.origin, &mut earlier, report) else {
            continue;
        };
        routes.push(route::resolve(table, name, Some(pattern), timeout, report));
    }
    check_twice(&earlier, report);
    routes.into_iter().collect()
}

/// A route that was seen before, and where.
struct Earlier {
    pattern: Sourced<Pattern>,
    name: Sourced<String>,
}

/// The name and the pattern of a route.
fn identity(
    section: &Section<'_>,
    origin: &Origin,
    earlier: &mut Vec<Earlier>,
    report: &mut Report,
) -> Option<(String, Pattern)> {
    let IdentityLayer { name, pattern } = IdentityLayer::read(section, report);
    let Some(pattern) = pattern else {
        if section.node("match").is_none() {
            let help = "as in `match = \"POST /payments/*\"`".to_owned();
            report.at(origin, "this route has no `match`".into(), Some(help));
        }
        return None;
    };
    let name = name.unwrap_or_else(|| Sourced {
        value: pattern.value.to_string(),
        origin: pattern.origin.clone(),
    });
    let taken = earlier.iter().find(|other| other.name.value == name.value);
    if name.value == DEFAULT_NAME {
        let message = format!("`name`: \"{DEFAULT_NAME}\" is the name of the route for the rest");
        report.at(&name.origin, message, None);
    } else if let Some(other) = taken.filter(|other| other.pattern.value != pattern.value) {
        let place = report.name_of(&other.name.origin);
        let message = format!("`name`: {:?} is taken by the route at {place}", name.value);
        report.at(&name.origin, message, None);
    }
    let found = (name.value.clone(), pattern.value.clone());
    earlier.push(Earlier { pattern, name });
    Some(found)
}

/// Reports routes that are for the same requests as an earlier one.
fn check_twice(routes: &[Earlier], report: &mut Report) {
    let mut earlier: Vec<(Reach<'_>, &Origin)> = Vec::new();
    for route in routes {
        let Sourced { value, origin } = &route.pattern;
        let reach = Reach::of(value);
        let same = |other: &Reach<'_>| other.covers(&reach) && reach.covers(other);
        if let Some((_, first)) = earlier.iter().find(|(other, _)| same(other)) {
            let place = report.name_of(first);
            let message = format!("`match`: this route is listed twice, first at {place}");
            report.at(origin, message, None);
        }
        earlier.push((reach, origin));
    }
}

fn pattern(node: &Node) -> Read<Pattern> {
    Pattern::parse(text(node)?).map_err(|error| Invalid::at(node, error.to_string()))
}

fn name(node: &Node) -> Read<String> {
    let name = full_text(node)?;
    if name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        let message = format!("expected at most {MAX_NAME_CHARS} visible characters");
        return Err(Invalid::at(node, message));
    }
    Ok(name)
}
