//! From the payload of format versions 1 and 2 to the domain, checking every value on the way.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::wire::{
    WireBody, WireCheckpoint, WireEntry, WireHow, WireKind, WireNote, WireOnFailure, WireOnLapsed,
    WireOutcome, WirePolicy, WireReason, WireRecord, WireRefused, WireResolver, WireSettled,
    WireState, WireStored,
};
use crate::claim::{Checkpoint, Fence, Owner, Token};
use crate::clock::Timestamp;
use crate::error::Damage;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::Outcome;
use crate::policy::{AfterRetention, BackOff, OnFailure, OnLapsed, Policy};
use crate::protocol::Stored;
use crate::protocol::{
    AwaitingRetry, Entry, Failed, HowResolved, InProgress, Note, NoteKind, Record, RefusedStep,
    Resolver, Settled, State, Subject, Timeline, Tombstone, Unknown, UnknownReason, Why,
};
use crate::scope::Scope;

/// Reads a payload.
pub(super) fn read(payload: &[u8]) -> Result<Stored, Damage> {
    let (wire, rest) =
        postcard::take_from_bytes::<WireStored<'_>>(payload).map_err(|_| Damage::Content)?;
    if !rest.is_empty() {
        return Err(Damage::Content);
    }
    let entry = match wire.entry {
        WireEntry::Record(record) => Entry::Record(read_record(&record)?),
        WireEntry::Tombstone { fence, since, until } => Entry::Tombstone(Tombstone {
            fence: Fence::new(fence),
            since: Timestamp::from_millis(since),
            until: Timestamp::from_millis(until),
        }),
    };
    let timeline = Timeline::from_parts(wire.notes.iter().map(read_note), wire.dropped);
    Ok(Stored { entry, timeline })
}

/// Reads the payload of an outcome alone.
pub(super) fn outcome(payload: &[u8]) -> Result<Outcome, Damage> {
    let (wire, rest) =
        postcard::take_from_bytes::<WireOutcome<'_>>(payload).map_err(|_| Damage::Content)?;
    if rest.is_empty() { read_outcome(&wire) } else { Err(Damage::Content) }
}

fn read_record(wire: &WireRecord<'_>) -> Result<Record, Damage> {
    let subject = Subject {
        scope: Scope::stored(wire.scope).ok_or(Damage::Content)?,
        key: Key::client(wire.key).map_err(|_| Damage::Content)?,
        fingerprint: Fingerprint::from_parts(wire.fingerprint_version, wire.fingerprint),
        created_at: Timestamp::from_millis(wire.created_at),
    };
    Ok(Record {
        subject: Arc::new(subject),
        fence: Fence::new(wire.fence),
        attempt: wire.attempt,
        changed_at: Timestamp::from_millis(wire.changed_at),
        state: read_state(&wire.state)?,
    })
}

fn read_state(wire: &WireState<'_>) -> Result<State, Damage> {
    Ok(match wire {
        WireState::InProgress { owner, token, claimed_at, lease_until, policy, checkpoint } => {
            State::InProgress(InProgress {
                owner: Owner::new(owner),
                token: Token(*token),
                claimed_at: Timestamp::from_millis(*claimed_at),
                lease_until: Timestamp::from_millis(*lease_until),
                policy: read_policy(policy)?,
                checkpoint: read_checkpoint(checkpoint.as_ref())?,
            })
        }
        WireState::Completed(settled) => State::Completed(read_settled(settled)?),
        WireState::FailedForGood(settled) => State::Failed(Failed::Final(read_settled(settled)?)),
        WireState::FailedForNow { failure, retry_at, expires_at, policy, checkpoint } => {
            State::Failed(Failed::AwaitingRetry(AwaitingRetry {
                failure: read_outcome(failure)?,
                retry_at: Timestamp::from_millis(*retry_at),
                expires_at: Timestamp::from_millis(*expires_at),
                policy: read_policy(policy)?,
                checkpoint: read_checkpoint(checkpoint.as_ref())?,
            }))
        }
        WireState::Unknown { reason, owner, policy, checkpoint } => State::Unknown(Unknown {
            reason: read_reason(reason),
            owner: Owner::new(owner),
            policy: read_policy(policy)?,
            checkpoint: read_checkpoint(checkpoint.as_ref())?,
        }),
    })
}

fn read_settled(wire: &WireSettled<'_>) -> Result<Settled, Damage> {
    Ok(Settled {
        outcome: read_outcome(&wire.outcome)?,
        expires_at: Timestamp::from_millis(wire.expires_at),
        after_retention: read_after(wire.refuse),
    })
}

fn read_outcome(wire: &WireOutcome<'_>) -> Result<Outcome, Damage> {
    let mut builder = Outcome::builder();
    if let Some(status) = wire.status {
        builder = builder.status(status);
    }
    for (name, value) in &wire.headers {
        builder = builder.header(*name, Bytes::copy_from_slice(value));
    }
    builder = match wire.body {
        WireBody::Whole(bytes) => builder.body(Bytes::copy_from_slice(bytes)),
        WireBody::TooLarge(size) => builder.too_large(size),
    };
    builder.build().map_err(|_| Damage::Content)
}

fn read_checkpoint(wire: Option<&WireCheckpoint<'_>>) -> Result<Option<Checkpoint>, Damage> {
    let Some(wire) = wire else { return Ok(None) };
    let point = Checkpoint::new(wire.name, Bytes::copy_from_slice(wire.data));
    Ok(Some(point.map_err(|_| Damage::Content)?.numbered(wire.number)))
}

fn read_policy(wire: &WirePolicy) -> Result<Arc<Policy>, Damage> {
    let on_lapsed = match wire.on_lapsed {
        WireOnLapsed::Rerun => OnLapsed::Rerun,
        WireOnLapsed::Resume => OnLapsed::Resume,
        WireOnLapsed::Hold => OnLapsed::Hold,
    };
    let on_failure = match wire.on_failure {
        WireOnFailure::Replay => OnFailure::Replay,
        WireOnFailure::Release => OnFailure::Release,
        WireOnFailure::Retry { first, max } => OnFailure::Retry(BackOff {
            first: Duration::from_millis(first),
            max: Duration::from_millis(max),
        }),
    };
    Policy::builder()
        .lease(Duration::from_millis(wire.lease))
        .lease_cap(Duration::from_millis(wire.lease_cap))
        .on_lapsed(on_lapsed)
        .on_failure(on_failure)
        .max_attempts(NonZeroU32::new(wire.max_attempts))
        .retention(Duration::from_millis(wire.retention))
        .after_retention(read_after(wire.refuse))
        .build()
        .map(Arc::new)
        .map_err(|_| Damage::Content)
}

const fn read_after(refuse: Option<u64>) -> AfterRetention {
    match refuse {
        None => AfterRetention::New,
        Some(life) => AfterRetention::Refuse(Duration::from_millis(life)),
    }
}

const fn read_reason(wire: &WireReason) -> UnknownReason {
    match wire {
        WireReason::Lapsed => UnknownReason::Lapsed,
        WireReason::AttemptsExhausted => UnknownReason::AttemptsExhausted,
        WireReason::TimedOut => UnknownReason::TimedOut,
        WireReason::Panicked => UnknownReason::Panicked,
        WireReason::Dropped => UnknownReason::Dropped,
        WireReason::Reported => UnknownReason::Reported,
    }
}

fn read_note(wire: &WireNote<'_>) -> Note {
    let kind = match &wire.kind {
        WireKind::Claimed(owner) => NoteKind::Claimed(Owner::new(owner)),
        WireKind::TakenOver(owner) => NoteKind::TakenOver(Owner::new(owner)),
        WireKind::Checkpointed(name) => NoteKind::Checkpointed(Arc::from(*name)),
        WireKind::Completed => NoteKind::Completed,
        WireKind::FailedForNow => NoteKind::FailedForNow,
        WireKind::FailedForGood => NoteKind::FailedForGood,
        WireKind::GivenUp(reason) => NoteKind::GivenUp(read_reason(reason)),
        WireKind::Held(reason) => NoteKind::Held(read_reason(reason)),
        WireKind::GivenUpBecause(reason, why) => {
            NoteKind::GivenUpBecause(read_reason(reason), Why::new(why))
        }
        WireKind::HeldBecause(reason, why) => {
            NoteKind::HeldBecause(read_reason(reason), Why::new(why))
        }
        WireKind::Released => NoteKind::Released,
        WireKind::Refused(step) => NoteKind::Refused(read_refused(step)),
        WireKind::Resolved { by, name, how, why } => {
            let resolver = match by {
                WireResolver::Probe => Resolver::probe(name),
                WireResolver::Callback => Resolver::callback(name),
                WireResolver::Operator => Resolver::operator(name),
            };
            NoteKind::Resolved(resolver, read_how(how), Why::new(why))
        }
    };
    Note { at: Timestamp::from_millis(wire.at), fence: Fence::new(wire.fence), kind }
}

const fn read_refused(wire: &WireRefused) -> RefusedStep {
    match wire {
        WireRefused::Complete => RefusedStep::Complete,
        WireRefused::Fail => RefusedStep::Fail,
        WireRefused::Release => RefusedStep::Release,
        WireRefused::Renew => RefusedStep::Renew,
        WireRefused::Checkpoint => RefusedStep::Checkpoint,
        WireRefused::Abandon => RefusedStep::Abandon,
        WireRefused::Resolve => RefusedStep::Resolve,
    }
}

const fn read_how(wire: &WireHow) -> HowResolved {
    match wire {
        WireHow::Completed => HowResolved::Completed,
        WireHow::Failed => HowResolved::Failed,
        WireHow::Released => HowResolved::Released,
    }
}
