//! Words with a time behind them.

use std::ops::RangeInclusive;
use std::time::Duration;

use justonce_core::{AfterRetention, MAX_RETENTION};
use justonce_http::WhenBusy;

use crate::invalid::{Invalid, Read};
use crate::kind::{repeated, text, time_in};
use crate::nearest::did_you_mean;
use crate::tree::Node;

/// How long late arrivals are refused unless it is said.
const DEFAULT_REFUSE: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a caller may wait; callers are gone by then.
pub(super) const WAITS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// How long outcomes may be replayed, and late arrivals refused.
pub(super) const RETENTIONS: RangeInclusive<Duration> = Duration::from_millis(1)..=MAX_RETENTION;

/// `reject` or `wait 10s`.
pub(super) fn on_concurrent(node: &Node) -> Read<WhenBusy> {
    match split(text(node)?) {
        ("reject", "") => Ok(WhenBusy::Reject),
        ("wait", time) if !time.is_empty() => {
            let time = time_in(time, &WAITS, node)?;
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

fn wrong(node: &Node, what: &str, word: &str, valid: &[&'static str]) -> Invalid {
    let found = text(node).unwrap_or_default();
    Invalid::at(node, format!("expected {what}, found {}", repeated(found)))
        .help(did_you_mean(word, valid.iter().copied().filter(|name| *name != word)))
}
