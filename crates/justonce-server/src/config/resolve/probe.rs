//! How unknown operations of a route are asked about.

use std::time::Duration;

use http::Method;
use justonce::Canonical;

use super::layer::Layer;
use super::values::status_set;
use crate::config::complaint::{Complaint, Read};
use crate::config::convert::{
    boolean, header_in, list, number, one_or_more, pointer_in, repeated, text, time,
};
use crate::config::probe::{
    Fact, ProbeHeader, ProbeOutcome, ProbeRule, ProbeSettings, Template, Wanted,
};
use crate::config::report::Report;
use crate::config::section::{Section, Set};
use crate::config::settings::ScopePart;
use crate::config::tree::Node;

const DAY: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// More questions at once would be an attack on the service.
const MAX_AT_ONCE: usize = 100;

/// What a table says about probes.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeLayer {
    request: Option<Set<(Method, Template)>>,
    headers: Option<Set<Vec<ProbeHeader>>>,
    happened: Option<Set<Vec<ProbeRule>>>,
    did_not_happen: Option<Set<Vec<ProbeRule>>>,
    outcome: Option<Set<ProbeOutcome>>,
    status: Option<Set<usize>>,
    unique_keys: Option<Set<bool>>,
    after: Option<Set<Duration>>,
    release_after: Option<Set<Duration>>,
    pause: Option<Set<Duration>>,
    pause_max: Option<Set<Duration>>,
    timeout: Option<Set<Duration>>,
    at_once: Option<Set<usize>>,
}

impl ProbeLayer {
    /// Reads a table.
    pub(super) fn read(section: &Section<'_>, report: &mut Report) -> Self {
        Self {
            request: section.get("request", report, request),
            headers: section.get("headers", report, list(header)),
            happened: section.get("happened", report, one_or_more(rule)),
            did_not_happen: section.get("did_not_happen", report, one_or_more(rule)),
            outcome: section.get("outcome", report, outcome),
            status: section.get("status", report, number(200..=599)),
            unique_keys: section.get("unique_keys", report, boolean),
            after: section.get("after", report, time(Duration::ZERO..=DAY)),
            release_after: section.get("release_after", report, time(Duration::ZERO..=DAY)),
            pause: section.get("pause", report, time(LEAST_PAUSE..=HOUR)),
            pause_max: section.get("pause_max", report, time(LEAST_PAUSE..=DAY)),
            timeout: section.get("timeout", report, time(LEAST_PAUSE..=HOUR)),
            at_once: section.get("at_once", report, number(1..=MAX_AT_ONCE)),
        }
    }

    /// Lays this over what holds for all routes.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            request: self.request.or(below.request),
            headers: self.headers.or(below.headers),
            happened: self.happened.or(below.happened),
            did_not_happen: self.did_not_happen.or(below.did_not_happen),
            outcome: self.outcome.or(below.outcome),
            status: self.status.or(below.status),
            unique_keys: self.unique_keys.or(below.unique_keys),
            after: self.after.or(below.after),
            release_after: self.release_after.or(below.release_after),
            pause: self.pause.or(below.pause),
            pause_max: self.pause_max.or(below.pause_max),
            timeout: self.timeout.or(below.timeout),
            at_once: self.at_once.or(below.at_once),
        }
    }
}

/// The probe of a route, if it has one.
pub(super) fn resolve(
    layer: &Layer,
    scope: &[ScopePart],
    lease_cap: Duration,
    report: &mut Report,
) -> Option<ProbeSettings> {
    fn value<T: Clone>(set: &Option<Set<T>>, default: T) -> T {
        set.as_ref().map_or(default, |set| set.value.clone())
    }
    let said = &layer.probe;
    let Set { value: (method, target), origin } = said.request.as_ref()?;
    let probe = ProbeSettings {
        method: method.clone(),
        target: target.clone(),
        headers: value(&said.headers, Vec::new()),
        happened: value(&said.happened, Vec::new()),
        did_not_happen: value(&said.did_not_happen, Vec::new()),
        outcome: value(&said.outcome, ProbeOutcome::Answer),
        status: said.status.as_ref().and_then(|set| u16::try_from(set.value).ok()),
        unique_keys: value(&said.unique_keys, false),
        after: value(&said.after, Duration::from_secs(60)),
        release_after: value(&said.release_after, lease_cap),
        pause: value(&said.pause, Duration::from_secs(5)),
        pause_max: value(&said.pause_max, Duration::from_secs(600)),
        timeout: value(&said.timeout, Duration::from_secs(10)),
        at_once: value(&said.at_once, 4),
    };
    for (message, help) in complaints(&probe, scope) {
        report.at(origin, format!("`probe.request`: {message}"), Some(help.to_owned()));
    }
    Some(probe)
}

/// What is wrong with a probe as a whole, and what to do about it.
fn complaints(probe: &ProbeSettings, scope: &[ScopePart]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    if probe.happened.is_empty() && probe.did_not_happen.is_empty() {
        let help = "say which answers mean what with `happened` and `did_not_happen`";
        found.push(("no answer to it means anything", help));
    }
    if probe.method == Method::HEAD && needs_body(probe) {
        found.push(("answers to HEAD have no body", "ask with GET"));
    }
    if !probe.names(Fact::Record) && !probe.names(Fact::Key) {
        found.push(("it is the same for all operations", "put `{key}` or `{record}` into it"));
    } else if !tells_apart(probe, scope) {
        let help = "name the `{record}`, which the service hears as Idempotency-Record; or say \
                    `unique_keys = true` if no two callers ever use the same key";
        found.push(("callers may use the same key, and one would get another's answer", help));
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

/// Whether the answer is about one caller's operation and no other's. Only a hash is kept of a
/// caller's credential, so a question cannot name it.
fn tells_apart(probe: &ProbeSettings, scope: &[ScopePart]) -> bool {
    let told = |part: &ScopePart| match part {
        ScopePart::Tenant(_) => probe.names(Fact::Tenant),
        ScopePart::Caller | ScopePart::Principal(_) | ScopePart::Cookie(_) => false,
    };
    probe.unique_keys || probe.names(Fact::Record) || scope.iter().all(told)
}

/// `GET /payments?key={key}`.
fn request(node: &Node) -> Read<(Method, Template)> {
    let text = text(node)?.trim();
    let wrong = |why: &str| {
        let message = format!("expected \"GET /path?key={{key}}\", found {}{why}", repeated(text));
        Complaint::about(node, message)
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
    if is_path && !target.contains(['#', ' ']) { Ok((method, template)) } else { Err(wrong("")) }
}

fn template(text: &str, node: &Node) -> Read<Template> {
    Template::parse(text).map_err(|why| Complaint::about(node, why))
}

/// `authorization: Bearer …`.
fn header(node: &Node) -> Read<ProbeHeader> {
    // What is wrong is not repeated: it may be a credential.
    let wrong = || Complaint::about(node, "expected a header, as in \"x-tenant: {tenant}\"");
    let (name, value) = text(node)?.split_once(':').ok_or_else(wrong)?;
    let value = value.trim();
    http::HeaderValue::try_from(value).map_err(|_| wrong())?;
    Ok(ProbeHeader { name: header_in(name.trim(), node)?, value: template(value, node)? })
}

/// `200`, `2xx /status=paid`, `200 /data=[]`, `200 /id`.
fn rule(node: &Node) -> Read<ProbeRule> {
    let text = text(node)?;
    let mut words = text.split_whitespace();
    let status = words.next().and_then(status_set).ok_or_else(|| {
        let message = format!(
            "expected a status or a class and perhaps places in JSON, as in \"200 /status=paid\", \
             found {}",
            repeated(text)
        );
        Complaint::about(node, message)
    })?;
    let places = words.map(|word| place(word, node)).collect::<Read<Vec<_>>>()?;
    Ok(ProbeRule { status, places })
}

fn place(word: &str, node: &Node) -> Read<(justonce::JsonPointer, Wanted)> {
    let Some((place, value)) = word.split_once('=') else {
        return Ok((pointer_in(word, node)?, Wanted::Anything));
    };
    let fact = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let wanted = match (fact.and_then(Fact::parse), Canonical::of(value.as_bytes())) {
        (Some(fact), _) => Wanted::Fact(fact),
        (None, Canonical::Json(json)) => Wanted::Json(json),
        // A bare word is the text that people mean by it.
        (None, Canonical::Raw(_)) => Wanted::Json(serde_json::Value::from(value).to_string()),
    };
    Ok((pointer_in(place, node)?, wanted))
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
            Err(Complaint::about(node, format!("expected {what}, found {}", repeated(text))))
        }
    }
}
