//! Records and sagas as text.

use std::collections::BTreeMap;
use std::io::Write;

use comfy_table::{Table, presets};
use justonce_admin_api::{
    KeyDetail, KeyPage, KeyRow, OutcomeDetail, RemoveResponse, ResolveResponse, RetryResponse,
    SagaDetail, SagaPage, SagaRow, TimelineNote,
};

/// How many digits of an id a table shows; they are enough to name the record.
const ID_DIGITS: usize = 16;

type Fields = Vec<(&'static str, String)>;

/// A page of records.
pub(super) fn keys(page: &KeyPage) {
    for id in &page.damaged {
        say(&format!("The store cannot read the record {id}: it may be one of these."));
    }
    if page.keys.is_empty() && page.next.is_none() {
        return say("There are no such records.");
    }
    let mut table = table(&["ID", "STATE", "KEY", "SCOPE", "FENCE", "ATTEMPT", "CHANGED"]);
    for row in &page.keys {
        table.add_row([
            row.id.get(..ID_DIGITS).unwrap_or(&row.id).to_owned(),
            row.state.clone(),
            key_text(row.key.as_deref()),
            scope(row.scope.as_ref()),
            row.fence.to_string(),
            row.attempt.to_string(),
            row.changed_at.clone(),
        ]);
    }
    say_page(&table, page.next.as_deref());
}

/// A page of sagas.
pub(super) fn sagas(page: &SagaPage) {
    if page.sagas.is_empty() && page.next.is_none() {
        return say("There are no such sagas.");
    }
    let mut table = table(&["ID", "SAGA", "STATE", "KEY", "SCOPE", "CHANGED", "STUCK AT"]);
    for SagaRow { record: row, saga, stuck, .. } in &page.sagas {
        table.add_row([
            row.id.get(..ID_DIGITS).unwrap_or(&row.id).to_owned(),
            visible(saga),
            row.state.clone(),
            key_text(row.key.as_deref()),
            scope(row.scope.as_ref()),
            row.changed_at.clone(),
            visible(&stuck.join(", ")),
        ]);
    }
    say_page(&table, page.next.as_deref());
}

/// A record with its timeline.
pub(super) fn key(detail: &KeyDetail) {
    let mut fields = record(&detail.row);
    if let Some(claim) = &detail.claim {
        fields.push(("owner", claim.owner.clone()));
        fields.push(("claimed at", claim.claimed_at.clone()));
        fields.push(("lease until", claim.lease_until.clone()));
    }
    if let Some(unknown) = &detail.unknown {
        fields.push(("unknown since", unknown.since.clone()));
        fields.push(("unknown because", unknown.reason.clone()));
        fields.extend(unknown.cause.as_deref().map(|cause| ("cause", visible(cause))));
        fields.push(("last owner", unknown.owner.clone()));
    }
    fields.extend(detail.retry_at.clone().map(|at| ("may be tried from", at)));
    if let Some(point) = &detail.checkpoint {
        fields.push(("checkpoint", format!("{} ({} bytes)", visible(&point.name), point.bytes)));
    }
    fields.extend(detail.outcome.as_ref().map(|outcome| ("outcome", outcome_line(outcome))));
    say_fields(fields);
    detail.outcome.iter().for_each(contents);
    say_timeline(&detail.timeline, detail.timeline_dropped);
}

/// A saga with its steps and its timeline.
pub(super) fn saga(detail: &SagaDetail) {
    let row = &detail.row;
    let mut fields = record(&row.record);
    fields.insert(1, ("saga", visible(&row.saga)));
    fields.extend(row.parked.as_deref().map(|why| ("parked because", visible(why))));
    if let Some(claim) = &detail.claim {
        fields.push(("last owner", claim.owner.clone()));
        fields.push(("lease until", claim.lease_until.clone()));
    }
    if let Some(failed) = &detail.fallen {
        let because = format!("{}: {}", visible(&failed.step), visible(&failed.why));
        fields.push(("rolled back because", because));
    }
    say_fields(fields);
    if let Some(context) = &detail.context {
        say(&format!("context  {}", visible(&context.to_string())));
    }
    detail.outcome.iter().for_each(contents);
    if !detail.steps.is_empty() {
        let mut table = table(&["STEP", "GROUP", "COMPENSATED", "MARK", "WHY"]);
        for step in &detail.steps {
            table.add_row([
                visible(&step.name),
                step.group.to_string(),
                if step.compensated { "yes" } else { "no" }.to_owned(),
                step.mark.clone(),
                step.why.as_deref().map(visible).unwrap_or_default(),
            ]);
        }
        say(&format!("\n{}", table.trim_fmt()));
    }
    say_timeline(&detail.timeline, detail.timeline_dropped);
}

/// A resolution.
pub(super) fn resolved(resolved: &ResolveResponse) {
    let what = match resolved.resolved.as_str() {
        "released" => "released: the next request with its key executes it",
        "failed" => "failed for good: its key gets the outcome you gave",
        _ => "completed: its key gets the outcome you gave",
    };
    say(&format!("{} is {what}.", resolved.id));
}

/// An outcome that was removed.
pub(super) fn removed(removed: &RemoveResponse) {
    let what = match (removed.result.as_str(), removed.state.as_str()) {
        ("erased", _) => "erased: the next request with its key executes again",
        (_, "tombstone") => "expired: its outcome is gone, and late requests are refused",
        _ => "expired: its outcome is gone, and its key can be used anew",
    };
    say(&format!("{} is {what}.", removed.id));
}

/// A retry.
pub(super) fn retried(retried: &RetryResponse) {
    say(&format!("{} is due again: the next completer or caller drives it on.", retried.id));
}

/// Prints a line. A closed output, as by `head`, is not an error.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn record(row: &KeyRow) -> Fields {
    let mut fields = vec![
        ("id", row.id.clone()),
        ("key", key_text(row.key.as_deref())),
        ("scope", scope(row.scope.as_ref())),
        ("state", row.state.clone()),
        ("fence", row.fence.to_string()),
        ("attempts", row.attempt.to_string()),
        ("created at", row.created_at.clone()),
        ("changed at", row.changed_at.clone()),
    ];
    fields.extend(row.expires_at.clone().map(|at| ("expires at", at)));
    fields
}

fn say_page(table: &Table, next: Option<&str>) {
    say(&table.trim_fmt());
    if let Some(next) = next {
        say(&format!("There is more: --after {next}"));
    }
}

fn say_fields(fields: Fields) {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in fields {
        say(&format!("{name:<width$}  {value}"));
    }
}

fn say_timeline(notes: &[TimelineNote], dropped: u32) {
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
    say(&format!("\n{}", table.trim_fmt()));
    if dropped > 0 {
        say(&format!("{dropped} older notes were dropped."));
    }
}

fn outcome_line(outcome: &OutcomeDetail) -> String {
    let status = outcome.status.map_or_else(|| "no status".to_owned(), |code| code.to_string());
    let stored = if outcome.body_stored { "" } else { ", too large to be stored" };
    format!("{status}, {} bytes{stored}", outcome.body_bytes)
}

/// The contents of an outcome, if they were requested.
fn contents(outcome: &OutcomeDetail) {
    for (name, value) in outcome.headers.iter().flatten() {
        say(&format!("  {}: {}", visible(name), visible(value)));
    }
    if let Some(body) = &outcome.body {
        let lines: Vec<_> = body.lines().map(|line| format!("  {}", visible(line))).collect();
        say(&lines.join("\n"));
    }
    if let Some(base64) = &outcome.body_base64 {
        say(&format!("  (Base64) {base64}"));
    }
}

/// A key. One with spaces is in quotes, as its client wrote it: else its ends could not be seen.
fn key_text(key: Option<&str>) -> String {
    match key {
        None => "-".to_owned(),
        Some(key) if key.contains(' ') => format!("{:?}", visible(key)),
        Some(key) => visible(key),
    }
}

fn scope(parts: Option<&BTreeMap<String, String>>) -> String {
    // A hash is shortened: it only shows that the part is there.
    let short = |value: &str| match value.strip_prefix('~') {
        Some(hash) => format!("~{}", hash.get(..8).unwrap_or(hash)),
        None => visible(value),
    };
    let parts = parts.into_iter().flatten();
    let parts: Vec<_> = parts.map(|(name, value)| format!("{name}={}", short(value))).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(" ") }
}

/// A text from outside, without characters that control the terminal.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head.to_vec());
    table
}
