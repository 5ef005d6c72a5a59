//! Values with a small language of their own.

use std::ops::RangeInclusive;
use std::time::Duration;

use justonce::{AfterRetention, MAX_RETENTION};

use crate::config::complaint::{Complaint, Read};
use crate::config::convert::{choice, header_in, repeated, text, time_in};
use crate::config::nearest::did_you_mean;
use crate::config::report::Report;
use crate::config::section::Section;
use crate::config::settings::{OnStatus, ScopePart, StatusSet, WhenBusy};
use crate::config::tree::Node;

/// How long late arrivals are refused unless it is said.
const DEFAULT_REFUSE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The longest wait: a caller that is gone by then is waited for in vain.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(3600);
/// How long outcomes may be replayed, and late arrivals refused.
pub(super) const RETENTIONS: RangeInclusive<Duration> = Duration::from_millis(1)..=MAX_RETENTION;

/// `reject` or `wait 10s`.
pub(super) fn on_concurrent(node: &Node) -> Read<WhenBusy> {
    match split(text(node)?) {
        ("reject", "") => Ok(WhenBusy::Reject),
        ("wait", time) if !time.is_empty() => {
            let time = time_in(time, &(Duration::ZERO..=MAX_WAIT), node)?;
            Ok(if time.is_zero() { WhenBusy::Reject } else { WhenBusy::Wait(time) })
        }
        (word, _) => Err(wrong(node, "\"reject\" or \"wait 10s\"", word, &["reject", "wait"])),
    }
}

/// `new`, `refuse` or `refuse 30d`.
pub(super) fn after_retention(node: &Node) -> Read<AfterRetention> {
    match split(text(node)?) {
        ("new", "") => Ok(AfterRetention::New),
        ("refuse", "") => Ok(AfterRetention::Refuse(DEFAULT_REFUSE)),
        ("refuse", time) => Ok(AfterRetention::Refuse(time_in(time, &RETENTIONS, node)?)),
        (word, _) => {
            let what = "\"new\", \"refuse\" or \"refuse 30d\"";
            Err(wrong(node, what, word, &["new", "refuse"]))
        }
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

fn wrong(node: &Node, what: &str, word: &str, valid: &[&'static str]) -> Complaint {
    let found = text(node).unwrap_or_default();
    Complaint::about(node, format!("expected {what}, found {}", repeated(found)))
        .help(did_you_mean(word, valid.iter().copied().filter(|name| *name != word)))
}

/// `caller`, `header:x-user`, `cookie:session`, each perhaps with `principal:` in front, or
/// `tenant:header:x-tenant`.
pub(super) fn scope_part(node: &Node) -> Read<ScopePart> {
    let text = text(node)?.trim();
    let (is_tenant, source) = match text.split_once(':') {
        Some(("tenant", source)) => (true, source),
        Some(("principal", source)) => (false, source),
        _ => (false, text),
    };
    match (is_tenant, source.split_once(':')) {
        (false, None) if source == "caller" => Ok(ScopePart::Caller),
        (false, Some(("header", name))) => Ok(ScopePart::Principal(header_in(name.trim(), node)?)),
        (true, Some(("header", name))) => Ok(ScopePart::Tenant(header_in(name.trim(), node)?)),
        (false, Some(("cookie", name))) => Ok(ScopePart::Cookie(cookie_in(name.trim(), node)?)),
        _ => {
            let what = "\"caller\", \"header:x-user\", \"cookie:session\" or \
                        \"tenant:header:x-tenant\"";
            let message = format!("expected {what}, found {}", repeated(text));
            let name = !text.contains(':') && header_in(text, node).is_ok();
            let help = name.then(|| format!("did you mean \"header:{text}\"?"));
            Err(Complaint::about(node, message).help(help))
        }
    }
}

/// The name of a cookie.
fn cookie_in(name: &str, node: &Node) -> Read<Box<str>> {
    let is_fit = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_fit) {
        return Ok(name.into());
    }
    let message = format!("expected the name of a cookie, found {}", repeated(name));
    Err(Complaint::about(node, message))
}

const ON_STATUS: &[(&str, OnStatus)] =
    &[("keep", OnStatus::Keep), ("release", OnStatus::Release), ("unknown", OnStatus::Unknown)];

/// The entries of `store_status`.
pub(super) fn statuses(section: &Section<'_>, report: &mut Report) -> Vec<(StatusSet, OnStatus)> {
    let map = section.inside("store_status");
    let mut rules = Vec::new();
    for (name, member) in map.members() {
        let rule = map.get(name, report, choice(ON_STATUS));
        match (status_set(name), rule) {
            (Some(set), Some(rule)) => rules.push((set, rule.value)),
            (Some(_), None) => {}
            (None, _) => {
                let shown = repeated(name);
                let message = format!(
                    "`store_status`: expected a status from 200 to 599 or a class from \"2xx\" to \
                     \"5xx\", found {shown}"
                );
                report.at(&member.name_origin, message, None);
            }
        }
    }
    rules
}

pub(super) fn status_set(name: &str) -> Option<StatusSet> {
    let name = name.trim().to_ascii_lowercase();
    if let Some(class) = name.strip_suffix("xx") {
        let class = class.parse().ok().filter(|class| (2..=5).contains(class));
        return class.map(StatusSet::Class);
    }
    let digits = name.len() == 3 && name.bytes().all(|byte| byte.is_ascii_digit());
    let code = name.parse().ok().filter(|code| digits && (200..=599).contains(code));
    code.map(StatusSet::Code)
}
