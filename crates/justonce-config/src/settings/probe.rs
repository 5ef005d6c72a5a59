//! `probe`: how the upstream is asked what became of an unknown operation.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, Method};
use justonce_core::{Canonical, JsonPointer};
use justonce_http::ScopePart;

use super::route::RouteTable;
use super::status::StatusSet;
use super::template::{Fact, Template};
use crate::declare::settings;
use crate::invalid::{Invalid, Read};
use crate::kind::{
    custom, flag, header_in, list, number, one_or_more, optional, pointer_in, repeated, text, time,
};
use crate::report::Report;
use crate::section::Sourced;
use crate::tree::{Node, Origin};

const DAY: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// More probes at once would be an attack on the service.
const MAX_AT_ONCE: usize = 100;

settings! {
    /// How the upstream is asked what became of an unknown operation, and what its responses mean.
    pub struct ProbeSettings from ProbeLayer {
        /// How the upstream is asked what became of an unknown operation: GET or HEAD, and a path
        /// with `{key}`, `{record}`, `{tenant}` or `{fence}` in it; without it, it is not asked
        /// ([more](operating.md#probes)).
        request: ProbeRequest = custom(request), example "GET /payments?record={record}";
        /// Headers of that request, such as a credential of the gateway.
        headers: Vec<ProbeHeader> = list(header), default "", example "x-tenant: {tenant}";
        /// Answers that say that it took effect: a status or a class, and places in JSON with what
        /// must be there.
        happened: Vec<ProbeRule> = one_or_more(rule),
            default "", example "200 /status=paid, 200 /data/0";
        /// Answers that say that it did not, and never will.
        did_not_happen: Vec<ProbeRule> = one_or_more(rule),
            default "", example "404, 200 /data=[]";
        /// What is replayed of what took effect: `answer`, `json:/POINTER` of it, or `empty`.
        outcome: ProbeOutcome = custom(outcome), default "answer", example "json:/data/0";
        /// The status that is replayed; without it, the one of the response.
        status: Option<u16> = optional(number(200..=599)), example "201";
        /// Whether no two callers ever use the same key; then `{key}` is enough.
        unique_keys: bool = flag(), default "false", example "true";
        /// How long an operation must have been unknown before it is asked about.
        after: Duration = time(Duration::ZERO..=DAY), default "1m", example "10s";
        /// How long an operation must have been unknown before *did not happen* counts; by then,
        /// nothing of it may be under way any more. Without it, `lease_cap`.
        release_after: Duration = time(Duration::ZERO..=DAY),
            like "defaults.lease_cap", example "1h";
        /// The pause after the first unclear response; it doubles with each.
        pause: Duration = time(LEAST_PAUSE..=HOUR), default "5s", example "30s";
        /// The longest pause.
        pause_max: Duration = time(LEAST_PAUSE..=DAY), default "10m", example "1h";
        /// How long a response may take.
        timeout: Duration = time(LEAST_PAUSE..=HOUR), default "10s", example "2s";
        /// How many probes of this route are under way at once.
        at_once: usize = number(1..=MAX_AT_ONCE), default "4", example "16";
    }
}

/// A request that asks what became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// GET or HEAD, which change nothing.
    pub method: Method,
    /// A path and perhaps a query.
    pub target: Template,
}

/// What is replayed of an operation that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The response itself.
    Answer,
    /// The JSON at one place of the response.
    Json(JsonPointer),
    /// A status without a body.
    Empty,
}

/// Which responses a rule is for: those with a status, and with all of these in their JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRule {
    /// The status.
    pub status: StatusSet,
    /// Places of the JSON body and what must be there.
    pub places: Vec<(JsonPointer, Expected)>,
}

/// What must be at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Anything.
    Anything,
    /// This JSON, in its canonical form.
    Json(String),
    /// The text of one of the facts about the operation.
    Fact(Fact),
}

/// A header of a probe. Its value is never shown: it may be a credential.
#[derive(Clone, PartialEq, Eq)]
pub struct ProbeHeader {
    /// Its name.
    pub name: HeaderName,
    /// Its value.
    pub value: Template,
}

impl fmt::Debug for ProbeHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

impl ProbeSettings {
    /// Whether the request, or the rules for its response, name a fact.
    #[must_use]
    pub fn names(&self, fact: Fact) -> bool {
        let mut rules = self.happened.iter().chain(&self.did_not_happen);
        let expects = |rule: &ProbeRule| {
            rule.places.iter().any(|(_, expected)| *expected == Expected::Fact(fact))
        };
        self.request.target.names(fact)
            || self.headers.iter().any(|header| header.value.names(fact))
            || rules.any(expects)
    }
}

/// The probe of a route, if it has one. It waits for as long as a claim may live before it
/// releases, unless `release_after` is set.
pub(super) fn resolve(
    table: &RouteTable,
    lease_cap: Option<Duration>,
    report: &mut Report,
) -> Option<ProbeSettings> {
    let origin = &table.probe.request.as_ref()?.origin;
    let mut layer = table.probe.clone();
    let value = lease_cap.unwrap_or_default();
    layer.release_after.get_or_insert(Sourced { value, origin: Origin::Default });
    let probe = ProbeSettings::of(layer)?;
    for (message, help) in contradictions(&probe, &table.route.scope.as_ref()?.value) {
        report.at(origin, format!("`probe.request`: {message}"), Some(help.to_owned()));
    }
    Some(probe)
}

/// What is wrong with a probe as a whole, and what to do about it.
fn contradictions(probe: &ProbeSettings, scope: &[ScopePart]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    if probe.happened.is_empty() && probe.did_not_happen.is_empty() {
        let help = "say which responses mean what with `happened` and `did_not_happen`";
        found.push(("no response to it means anything", help));
    }
    if probe.request.method == Method::HEAD && needs_body(probe) {
        found.push(("responses to HEAD have no body", "ask with GET"));
    }
    if !probe.names(Fact::Record) && !probe.names(Fact::Key) {
        found.push(("it is the same for all operations", "put `{key}` or `{record}` into it"));
    } else if !tells_apart(probe, scope) {
        let help = "name the `{record}`, which the service hears as Idempotency-Record; or say \
                    `unique_keys = true` if no two callers ever use the same key";
        found.push(("callers may use the same key, and one would get another's response", help));
    }
    if probe.pause_max < probe.pause {
        found.push(("`pause_max` is shorter than `pause`", "raise it"));
    }
    found
}

fn needs_body(probe: &ProbeSettings) -> bool {
    let mut rules = probe.happened.iter().chain(&probe.did_not_happen);
    rules.any(|rule| !rule.places.is_empty()) || matches!(probe.outcome, ProbeOutcome::Json(_))
}

/// Whether the response is about one caller's operation and no other's. Only a hash is kept of a
/// caller's credential, so a probe cannot name it.
fn tells_apart(probe: &ProbeSettings, scope: &[ScopePart]) -> bool {
    let named = |part: &ScopePart| match part {
        ScopePart::Tenant(_) => probe.names(Fact::Tenant),
        _ => false,
    };
    probe.unique_keys || probe.names(Fact::Record) || scope.iter().all(named)
}

/// `GET /payments?key={key}`.
fn request(node: &Node) -> Read<ProbeRequest> {
    let text = text(node)?.trim();
    let wrong = |why: &str| {
        let message = format!("expected \"GET /path?key={{key}}\", found {}{why}", repeated(text));
        Invalid::at(node, message)
    };
    let (method, target) = text.split_once(' ').ok_or_else(|| wrong(""))?;
    let method = match method {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        _ => return Err(wrong(": only GET and HEAD change nothing")),
    };
    let target = target.trim();
    let template = template(target, node)?;
    let filled = template.fill(|_| Some("x".to_owned())).unwrap_or_default();
    let is_path = target.starts_with('/') && filled.parse::<http::uri::PathAndQuery>().is_ok();
    if is_path && !target.contains(['#', ' ']) {
        Ok(ProbeRequest { method, target: template })
    } else {
        Err(wrong(""))
    }
}

fn template(text: &str, node: &Node) -> Read<Template> {
    Template::parse(text).map_err(|why| Invalid::at(node, why))
}

/// `authorization: Bearer …`.
fn header(node: &Node) -> Read<ProbeHeader> {
    // What is wrong is not repeated: it may be a credential.
    let wrong = || Invalid::at(node, "expected a header, as in \"x-tenant: {tenant}\"");
    let (name, value) = text(node)?.split_once(':').ok_or_else(wrong)?;
    let value = value.trim();
    http::HeaderValue::try_from(value).map_err(|_| wrong())?;
    Ok(ProbeHeader { name: header_in(name.trim(), node)?, value: template(value, node)? })
}

/// `200`, `2xx /status=paid`, `200 /data=[]`, `200 /id`.
fn rule(node: &Node) -> Read<ProbeRule> {
    let text = text(node)?;
    let mut words = text.split_whitespace();
    let status = words.next().and_then(StatusSet::parse).ok_or_else(|| {
        let message = format!(
            "expected a status or a class and perhaps places in JSON, as in \"200 /status=paid\", \
             found {}",
            repeated(text)
        );
        Invalid::at(node, message)
    })?;
    let places = words.map(|word| place(word, node)).collect::<Read<Vec<_>>>()?;
    Ok(ProbeRule { status, places })
}

fn place(word: &str, node: &Node) -> Read<(JsonPointer, Expected)> {
    let Some((place, value)) = word.split_once('=') else {
        return Ok((pointer_in(word, node)?, Expected::Anything));
    };
    let fact = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let expected = match (fact.and_then(Fact::parse), Canonical::of(value.as_bytes())) {
        (Some(fact), _) => Expected::Fact(fact),
        (None, Canonical::Json(json)) => Expected::Json(json),
        // A bare word stands for the text.
        (None, Canonical::Raw(_)) => Expected::Json(serde_json::Value::from(value).to_string()),
    };
    Ok((pointer_in(place, node)?, expected))
}

/// `answer`, `json:/pointer` or `empty`.
fn outcome(node: &Node) -> Read<ProbeOutcome> {
    let text = text(node)?.trim();
    match text.split_once(':') {
        None if text == "answer" => Ok(ProbeOutcome::Answer),
        None if text == "empty" => Ok(ProbeOutcome::Empty),
        Some(("json", place)) => Ok(ProbeOutcome::Json(pointer_in(place.trim(), node)?)),
        _ => {
            let what = "\"answer\", \"json:/pointer\" or \"empty\"";
            Err(Invalid::at(node, format!("expected {what}, found {}", repeated(text))))
        }
    }
}
