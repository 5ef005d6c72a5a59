//! From the domain to the payload of format version 1, or of 2 where it needs that.

use std::time::Duration;

use serde_bytes::Bytes as Raw;

use super::frame::{FORMAT_VERSION, FORMAT_VERSION_1};
use super::wire::{
    WireBody, WireCheckpoint, WireEntry, WireHow, WireKind, WireNote, WireOnFailure, WireOnLapsed,
    WireOutcome, WirePolicy, WireReason, WireRecord, WireRefused, WireResolver, WireSettled,
    WireState, WireStored,
};
use crate::claim::Checkpoint;
use crate::clock::Timestamp;
use crate::outcome::{Body, Outcome};
use crate::policy::{AfterRetention, OnFailure, OnLapsed, Policy};
use crate::protocol::Stored;
use crate::protocol::{
    Entry, Failed, HowResolved, Note, NoteKind, Record, RefusedStep, Resolver, Settled, State,
    UnknownReason,
};

/// What a record takes beside its body: names, times and two notes.
const TYPICAL_OVERHEAD_BYTES: usize = 256;

/// About how many bytes the payload will have, so that it is written without growing.
pub(super) fn size_hint(stored: &Stored) -> usize {
    let body = match &stored.entry {
        Entry::Record(Record { state, .. }) => match state {
            State::Completed(settled) | State::Failed(Failed::Final(settled)) => {
                settled.outcome.body().map_or(0, <[u8]>::len)
            }
            _ => 0,
        },
        Entry::Tombstone(_) => 0,
    };
    TYPICAL_OVERHEAD_BYTES + body
}

/// The version that the payload needs: the oldest that can say it, so that releases which know only
/// that one can read it.
pub(super) fn version(stored: &Stored) -> u8 {
    let needs_2 =
        |note: &Note| matches!(note.kind, NoteKind::GivenUpBecause(..) | NoteKind::HeldBecause(..));
    if stored.timeline.notes().iter().any(needs_2) { FORMAT_VERSION } else { FORMAT_VERSION_1 }
}

/// Appends the payload.
pub(super) fn write(stored: &Stored, frame: Vec<u8>) -> Vec<u8> {
    // Writing into memory cannot fail: these types have no case that the format refuses.
    postcard::to_extend(&wire_stored(stored), frame).unwrap_or_default()
}

/// At most so many bytes has the payload of an outcome alone.
pub(super) fn outcome_size(outcome: &Outcome) -> usize {
    // Lengths take five bytes at most.
    let headers = outcome.headers().iter().map(|h| h.name.len() + h.value.len() + 10);
    headers.sum::<usize>() + outcome.body().map_or(0, <[u8]>::len) + 20
}

/// Appends the payload of an outcome alone.
pub(super) fn outcome(outcome: &Outcome, frame: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(&wire_outcome(outcome), frame).unwrap_or_default()
}

fn wire_stored(stored: &Stored) -> WireStored<'_> {
    WireStored {
        entry: match &stored.entry {
            Entry::Record(record) => WireEntry::Record(wire_record(record)),
            Entry::Tombstone(tombstone) => WireEntry::Tombstone {
                fence: tombstone.fence.get(),
                since: tombstone.since.as_millis(),
                until: tombstone.until.as_millis(),
            },
        },
        notes: stored.timeline.notes().iter().map(wire_note).collect(),
        dropped: stored.timeline.dropped(),
    }
}

fn wire_record(record: &Record) -> WireRecord<'_> {
    WireRecord {
        scope: record.subject.scope.as_str(),
        key: record.subject.key.as_str(),
        fingerprint_version: record.subject.fingerprint.version(),
        fingerprint: *record.subject.fingerprint.digest(),
        created_at: record.subject.created_at.as_millis(),
        fence: record.fence.get(),
        attempt: record.attempt,
        changed_at: record.changed_at.as_millis(),
        state: wire_state(&record.state),
    }
}

fn wire_state(state: &State) -> WireState<'_> {
    match state {
        State::InProgress(claim) => WireState::InProgress {
            owner: claim.owner.as_str(),
            token: claim.token.0,
            claimed_at: claim.claimed_at.as_millis(),
            lease_until: claim.lease_until.as_millis(),
            policy: wire_policy(&claim.policy),
            checkpoint: claim.checkpoint.as_ref().map(wire_checkpoint),
        },
        State::Completed(settled) => WireState::Completed(wire_settled(settled)),
        State::Failed(Failed::Final(settled)) => WireState::FailedForGood(wire_settled(settled)),
        State::Failed(Failed::AwaitingRetry(waiting)) => WireState::FailedForNow {
            failure: wire_outcome(&waiting.failure),
            retry_at: waiting.retry_at.as_millis(),
            expires_at: waiting.expires_at.as_millis(),
            policy: wire_policy(&waiting.policy),
            checkpoint: waiting.checkpoint.as_ref().map(wire_checkpoint),
        },
        State::Unknown(unknown) => WireState::Unknown {
            reason: wire_reason(unknown.reason),
            owner: unknown.owner.as_str(),
            policy: wire_policy(&unknown.policy),
            checkpoint: unknown.checkpoint.as_ref().map(wire_checkpoint),
        },
    }
}

fn wire_settled(settled: &Settled) -> WireSettled<'_> {
    WireSettled {
        outcome: wire_outcome(&settled.outcome),
        expires_at: settled.expires_at.as_millis(),
        refuse: wire_after(settled.after_retention),
    }
}

fn wire_outcome(outcome: &Outcome) -> WireOutcome<'_> {
    WireOutcome {
        status: outcome.status(),
        headers: outcome.headers().iter().map(|h| (&*h.name, Raw::new(&h.value))).collect(),
        body: match outcome.stored_body() {
            Body::Whole(bytes) => WireBody::Whole(Raw::new(bytes)),
            Body::TooLarge(size) => WireBody::TooLarge(*size),
        },
    }
}

fn wire_checkpoint(checkpoint: &Checkpoint) -> WireCheckpoint<'_> {
    WireCheckpoint {
        name: checkpoint.name(),
        data: Raw::new(checkpoint.data()),
        number: checkpoint.number(),
    }
}

fn wire_policy(policy: &Policy) -> WirePolicy {
    WirePolicy {
        lease: millis(policy.lease),
        lease_cap: millis(policy.lease_cap),
        on_lapsed: match policy.on_lapsed {
            OnLapsed::Rerun => WireOnLapsed::Rerun,
            OnLapsed::Resume => WireOnLapsed::Resume,
            OnLapsed::Hold => WireOnLapsed::Hold,
        },
        on_failure: match policy.on_failure {
            OnFailure::Replay => WireOnFailure::Replay,
            OnFailure::Release => WireOnFailure::Release,
            OnFailure::Retry(back_off) => {
                WireOnFailure::Retry { first: millis(back_off.first), max: millis(back_off.max) }
            }
        },
        max_attempts: policy.max_attempts.map_or(0, std::num::NonZeroU32::get),
        retention: millis(policy.retention),
        refuse: wire_after(policy.after_retention),
    }
}

fn wire_after(after: AfterRetention) -> Option<u64> {
    match after {
        AfterRetention::New => None,
        AfterRetention::Refuse(life) => Some(millis(life)),
    }
}

fn millis(duration: Duration) -> u64 {
    Timestamp::ZERO.after(duration).as_millis()
}

fn wire_reason(reason: UnknownReason) -> WireReason {
    match reason {
        UnknownReason::Lapsed => WireReason::Lapsed,
        UnknownReason::AttemptsExhausted => WireReason::AttemptsExhausted,
        UnknownReason::TimedOut => WireReason::TimedOut,
        UnknownReason::Panicked => WireReason::Panicked,
        UnknownReason::Dropped => WireReason::Dropped,
        UnknownReason::Reported => WireReason::Reported,
    }
}

fn wire_note(note: &Note) -> WireNote<'_> {
    let kind = match &note.kind {
        NoteKind::Claimed(owner) => WireKind::Claimed(owner.as_str()),
        NoteKind::TakenOver(owner) => WireKind::TakenOver(owner.as_str()),
        NoteKind::Checkpointed(name) => WireKind::Checkpointed(name),
        NoteKind::Completed => WireKind::Completed,
        NoteKind::FailedForNow => WireKind::FailedForNow,
        NoteKind::FailedForGood => WireKind::FailedForGood,
        NoteKind::GivenUp(reason) => WireKind::GivenUp(wire_reason(*reason)),
        NoteKind::Held(reason) => WireKind::Held(wire_reason(*reason)),
        NoteKind::GivenUpBecause(reason, why) => {
            WireKind::GivenUpBecause(wire_reason(*reason), why.as_str())
        }
        NoteKind::HeldBecause(reason, why) => {
            WireKind::HeldBecause(wire_reason(*reason), why.as_str())
        }
        NoteKind::Released => WireKind::Released,
        NoteKind::Refused(step) => WireKind::Refused(wire_refused(*step)),
        NoteKind::Resolved(resolver, how, why) => {
            let (by, name) = match resolver {
                Resolver::Probe(name) => (WireResolver::Probe, name),
                Resolver::Callback(name) => (WireResolver::Callback, name),
                Resolver::Operator(name) => (WireResolver::Operator, name),
            };
            WireKind::Resolved { by, name, how: wire_how(*how), why: why.as_str() }
        }
    };
    WireNote { at: note.at.as_millis(), fence: note.fence.get(), kind }
}

fn wire_refused(step: RefusedStep) -> WireRefused {
    match step {
        RefusedStep::Complete => WireRefused::Complete,
        RefusedStep::Fail => WireRefused::Fail,
        RefusedStep::Release => WireRefused::Release,
        RefusedStep::Renew => WireRefused::Renew,
        RefusedStep::Checkpoint => WireRefused::Checkpoint,
        RefusedStep::Abandon => WireRefused::Abandon,
        RefusedStep::Resolve => WireRefused::Resolve,
    }
}

fn wire_how(how: HowResolved) -> WireHow {
    match how {
        HowResolved::Completed => WireHow::Completed,
        HowResolved::Failed => WireHow::Failed,
        HowResolved::Released => WireHow::Released,
    }
}
