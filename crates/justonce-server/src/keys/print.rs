//! Records for people.

use std::collections::BTreeMap;
use std::io::Write;

use comfy_table::{Table, presets};

use crate::admin::wire::{GivenUp, KeyDetail, KeyPage, KeyRow, NoteRow, OutcomeDetail, Resolved};

/// How many digits of a record's name are shown in a table; they are enough to name it.
pub(crate) const SHOWN_DIGITS: usize = 16;

/// An answer as it came.
pub(crate) fn raw(body: &[u8]) {
    say(&String::from_utf8_lossy(body));
}

/// A page as a table, and how to go on.
pub(super) fn page(page: &KeyPage) {
    for id in &page.damaged {
        say(&format!("The store cannot read the record {id}: it may be one of these."));
    }
    if page.keys.is_empty() && page.next.is_none() {
        return say("There are no such records.");
    }
    let mut table = table(&["ID", "STATE", "KEY", "SCOPE", "FENCE", "ATTEMPT", "CHANGED"]);
    for row in &page.keys {
        table.add_row([
            row.id.get(..SHOWN_DIGITS).unwrap_or(&row.id).to_owned(),
            row.state.clone(),
            row.key.as_deref().map_or_else(|| "-".to_owned(), visible),
            scope(row.scope.as_ref()),
            row.fence.to_string(),
            row.attempt.to_string(),
            row.changed_at.clone(),
        ]);
    }
    say(&table.trim_fmt());
    if let Some(next) = &page.next {
        say(&format!("There is more: --after {next}"));
    }
}

/// A record and its timeline.
pub(super) fn detail(detail: &KeyDetail) {
    let mut lines = about(&detail.row);
    if let Some(claim) = &detail.claim {
        lines.push(("owner", claim.owner.clone()));
        lines.push(("claimed at", claim.claimed_at.clone()));
        lines.push(("lease until", claim.lease_until.clone()));
    }
    if let Some(unknown) = &detail.unknown {
        lines.push(("unknown since", unknown.since.clone()));
        lines.push(("unknown because", unknown.reason.clone()));
        lines.extend(unknown.cause.as_deref().map(|cause| ("cause", visible(cause))));
        lines.push(("last owner", unknown.owner.clone()));
    }
    if let Some(at) = &detail.retry_at {
        lines.push(("may be tried from", at.clone()));
    }
    if let Some(point) = &detail.checkpoint {
        lines.push(("checkpoint", format!("{} ({} bytes)", visible(&point.name), point.bytes)));
    }
    if let Some(outcome) = &detail.outcome {
        lines.push(("outcome", outcome_line(outcome)));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in lines {
        say(&format!("{name:<width$}  {value}"));
    }
    if let Some(outcome) = &detail.outcome {
        contents(outcome);
    }
    say("");
    say(&timeline(&detail.timeline).trim_fmt());
    if detail.timeline_dropped > 0 {
        say(&format!("{} notes made room for newer ones.", detail.timeline_dropped));
    }
}

/// What became of a resolution.
pub(super) fn resolved(resolved: &Resolved) {
    let what = match resolved.resolved.as_str() {
        "released" => "released: the next request with its key executes it",
        "failed" => "failed for good: its key gets the answer you gave",
        _ => "completed: its key gets the answer you gave",
    };
    say(&format!("{} is {what}.", resolved.id));
}

/// What became of an outcome that was given up.
pub(super) fn given_up(given_up: &GivenUp) {
    let what = match (given_up.result.as_str(), given_up.state.as_str()) {
        ("erased", _) => "erased: the next request with its key executes again",
        (_, "tombstone") => "expired: its outcome is gone, and late requests are refused",
        _ => "expired: its outcome is gone, and its key can be used anew",
    };
    say(&format!("{} is {what}.", given_up.id));
}

fn about(row: &KeyRow) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("id", row.id.clone()),
        ("key", row.key.as_deref().map_or_else(|| "-".to_owned(), visible)),
        ("scope", scope(row.scope.as_ref())),
        ("state", row.state.clone()),
        ("fence", row.fence.to_string()),
        ("attempts", row.attempt.to_string()),
        ("created at", row.created_at.clone()),
        ("changed at", row.changed_at.clone()),
    ];
    lines.extend(row.expires_at.clone().map(|at| ("expires at", at)));
    lines
}

fn outcome_line(outcome: &OutcomeDetail) -> String {
    let status = outcome.status.map_or_else(|| "no status".to_owned(), |code| code.to_string());
    let stored = if outcome.body_stored { "" } else { ", too large to be stored" };
    format!("{status}, {} bytes{stored}", outcome.body_bytes)
}

/// The answer itself, if it was asked for.
pub(crate) fn contents(outcome: &OutcomeDetail) {
    for (name, value) in outcome.headers.iter().flatten() {
        say(&format!("  {}: {}", visible(name), visible(value)));
    }
    if let Some(body) = &outcome.body {
        say(&body
            .lines()
            .map(|line| format!("  {}", visible(line)))
            .collect::<Vec<_>>()
            .join("\n"));
    }
    if let Some(base64) = &outcome.body_base64 {
        say(&format!("  (Base64) {base64}"));
    }
}

pub(crate) fn timeline(notes: &[NoteRow]) -> Table {
    let mut table = table(&["AT", "FENCE", "WHAT", "BY", "HOW", "WHY"]);
    for note in notes {
        let by = match (&note.by_kind, &note.by) {
            (Some(kind), Some(name)) => format!("{kind} {}", visible(name)),
            (None, Some(name)) => visible(name),
            _ => String::new(),
        };
        let text = |text: &Option<String>| text.as_deref().map(visible).unwrap_or_default();
        table.add_row([
            note.at.clone(),
            note.fence.to_string(),
            note.what.clone(),
            by,
            text(&note.how),
            match &note.cause {
                Some(cause) => format!("{}: {}", text(&note.why), visible(cause)),
                None => text(&note.why),
            },
        ]);
    }
    table
}

pub(crate) fn scope(parts: Option<&BTreeMap<String, String>>) -> String {
    let Some(parts) = parts else { return "-".to_owned() };
    // A hash tells people nothing beyond that it is there.
    let short = |value: &str| match value.strip_prefix('~') {
        Some(hash) => format!("~{}", hash.get(..8).unwrap_or(hash)),
        None => visible(value),
    };
    let parts: Vec<_> =
        parts.iter().map(|(name, value)| format!("{name}={}", short(value))).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(" ") }
}

/// A text of strangers, without what would steer the terminal.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head.to_vec());
    table
}

/// Prints a line. A reader that has left, such as `head`, is no mistake.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
