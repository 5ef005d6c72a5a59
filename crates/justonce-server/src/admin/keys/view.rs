//! Records as the admin API shows them.

use std::time::{Duration, UNIX_EPOCH};

use data_encoding::BASE64;
use justonce::engine::Inspected;
use justonce::store::{ListQuery, Summary};
use justonce::{
    Body, Checkpoint, Existing, Failed, Note, NoteKind, Outcome, Record, RecordId, State,
    StateName, Timestamp,
};
use justonce_admin_api::{
    CheckpointDetail, ClaimDetail, KeyDetail, KeyRow, OutcomeDetail, TimelineNote, UnknownDetail,
};

/// A record in a list.
pub(crate) fn row(summary: &Summary) -> KeyRow {
    let scope = summary
        .scope
        .as_ref()
        .map(|scope| scope.named_parts().map(|(name, value)| (name.to_owned(), value)).collect());
    KeyRow {
        id: summary.id.to_string(),
        state: summary.state.as_str().to_owned(),
        key: summary.key.as_ref().map(|key| key.as_str().to_owned()),
        scope,
        fence: summary.fence.get(),
        attempt: summary.attempt,
        created_at: moment(summary.created_at),
        changed_at: moment(summary.changed_at),
        expires_at: summary.expires_at.map(moment),
    }
}

/// A record with its timeline, and the contents of its outcome if they were requested.
pub(crate) fn detail(id: RecordId, looked: &Inspected, contents: bool) -> Option<KeyDetail> {
    let entry = &looked.stored.entry;
    // At time zero no retention has ended, so every entry has a summary.
    let mut summary = ListQuery::default().matches(id, entry, Timestamp::ZERO)?;
    summary.state = looked.state();
    let record = entry.record();
    let timeline = &looked.stored.timeline;
    Some(KeyDetail {
        row: row(&summary),
        claim: record.and_then(claim).filter(|_| summary.state == StateName::InProgress),
        unknown: unknown(looked, record),
        retry_at: record.and_then(retry_at),
        checkpoint: record.and_then(checkpoint).map(point),
        outcome: record.and_then(outcome).map(|outcome| outcome_detail(outcome, contents)),
        timeline: timeline.notes().iter().map(note).collect(),
        timeline_dropped: timeline.dropped(),
    })
}

fn claim(record: &Record) -> Option<ClaimDetail> {
    let State::InProgress(claim) = &record.state else { return None };
    Some(ClaimDetail {
        owner: claim.owner.as_str().to_owned(),
        claimed_at: moment(claim.claimed_at),
        lease_until: moment(claim.lease_until),
    })
}

fn unknown(looked: &Inspected, record: Option<&Record>) -> Option<UnknownDetail> {
    let Some(Existing::Unknown(unknown)) = &looked.existing else { return None };
    let owner = match &record?.state {
        State::InProgress(claim) => &claim.owner,
        State::Unknown(unknown) => &unknown.owner,
        State::Completed(_) | State::Failed(_) => return None,
    };
    let mut notes = looked.stored.timeline.notes().iter().rev();
    let (_, cause) = notes.find_map(|note| note.kind.unknown_because()).unzip();
    let cause = cause.flatten();
    Some(UnknownDetail {
        reason: unknown.reason.as_str().to_owned(),
        cause: cause.map(|cause| cause.as_str().to_owned()),
        since: moment(unknown.since),
        owner: owner.as_str().to_owned(),
    })
}

fn retry_at(record: &Record) -> Option<String> {
    match &record.state {
        State::Failed(Failed::AwaitingRetry(waiting)) => Some(moment(waiting.retry_at)),
        _ => None,
    }
}

const fn checkpoint(record: &Record) -> Option<&Checkpoint> {
    match &record.state {
        State::InProgress(claim) => claim.checkpoint.as_ref(),
        State::Unknown(unknown) => unknown.checkpoint.as_ref(),
        State::Failed(Failed::AwaitingRetry(waiting)) => waiting.checkpoint.as_ref(),
        State::Completed(_) | State::Failed(Failed::Final(_)) => None,
    }
}

fn point(checkpoint: &Checkpoint) -> CheckpointDetail {
    CheckpointDetail { name: checkpoint.name().to_owned(), bytes: checkpoint.data().len() }
}

const fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Completed(settled) | State::Failed(Failed::Final(settled)) => Some(&settled.outcome),
        _ => None,
    }
}

fn outcome_detail(outcome: &Outcome, contents: bool) -> OutcomeDetail {
    let (body_bytes, stored) = match outcome.stored_body() {
        Body::Whole(bytes) => (bytes.len() as u64, Some(bytes)),
        Body::TooLarge(size) => (*size, None),
    };
    let shown = stored.filter(|_| contents);
    let text = shown.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
    let base64 = shown.filter(|_| text.is_none()).map(|bytes| BASE64.encode(bytes));
    let headers = outcome.headers().iter().map(|header| {
        (header.name.to_string(), String::from_utf8_lossy(&header.value).into_owned())
    });
    OutcomeDetail {
        status: outcome.status(),
        header_names: outcome.headers().iter().map(|header| header.name.to_string()).collect(),
        body_bytes,
        body_stored: stored.is_some(),
        headers: contents.then(|| headers.collect()),
        body: text,
        body_base64: base64,
    }
}

fn note(note: &Note) -> TimelineNote {
    let mut row = TimelineNote {
        at: moment(note.at),
        fence: note.fence.get(),
        what: note.kind.as_str().to_owned(),
        ..TimelineNote::default()
    };
    match &note.kind {
        NoteKind::Claimed(owner) | NoteKind::TakenOver(owner) => {
            row.by = Some(owner.as_str().to_owned());
        }
        NoteKind::Checkpointed(name) => row.how = Some(name.to_string()),
        NoteKind::GivenUp(reason) | NoteKind::Held(reason) => {
            row.why = Some(reason.as_str().to_owned());
        }
        NoteKind::GivenUpBecause(reason, cause) | NoteKind::HeldBecause(reason, cause) => {
            row.why = Some(reason.as_str().to_owned());
            row.cause = Some(cause.as_str().to_owned());
        }
        NoteKind::Refused(step) => row.how = Some(step.as_str().to_owned()),
        NoteKind::Resolved(by, how, why) => {
            row.by = Some(by.name().to_owned());
            row.by_kind = Some(by.kind().to_owned());
            row.how = Some(how.as_str().to_owned());
            row.why = Some(why.as_str().to_owned());
        }
        NoteKind::Completed
        | NoteKind::FailedForNow
        | NoteKind::FailedForGood
        | NoteKind::Released => {}
    }
    row
}

/// A moment as RFC 3339 writes it. What lies beyond all calendars is shown in milliseconds.
fn moment(at: Timestamp) -> String {
    const LAST_YEAR_9999_MS: u64 = 253_402_300_799_000;
    if at.as_millis() > LAST_YEAR_9999_MS {
        return at.to_string();
    }
    let time = UNIX_EPOCH + Duration::from_millis(at.as_millis());
    humantime::format_rfc3339_millis(time).to_string()
}
