//! From the replies of the scripts to the answers of the protocol.

use std::time::Duration;

use justonce_core::{
    Action, Answer, Begin, Change, Claimed, DamagedRecord, Existing, Fence, Lost, RecordId, Step,
    StoreError, StoreErrorKind, StoreResult, SweepDone, Timestamp, UnknownReason, UnknownSince,
    transition,
};
use redis::Value;

use crate::codec;
use crate::error::strange;

/// The answer to a step, and whether the step wrote something.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) wrote: bool,
}

/// The answer to a begin or a completion that may have gone with others.
pub(crate) fn shared(step: &Step, value: &Value) -> StoreResult<Answer> {
    let answered = match &step.action {
        Action::Begin(begin) => begun(&step.id, begin, &step.action, value),
        _ => written(&step.id, value),
    };
    Ok(answered?.answer)
}

/// The answer to a begin.
pub(crate) fn begun(
    id: &RecordId,
    begin: &Begin,
    action: &Action,
    value: &Value,
) -> StoreResult<Answered> {
    let wrote = |answer| Ok(Answered { answer, wrote: true });
    match parts(value) {
        [] => word_begun(id, begin, value),
        [Value::Int(now), Value::BulkString(record)] => looked(id, action, *now, Some(record)),
        [Value::Int(fence), Value::Int(attempt), Value::BulkString(point)] => {
            let checkpoint = match point.as_slice() {
                [] => None,
                point => Some(codec::point(point).map_err(|damage| claimed_damaged(id, damage))?),
            };
            wrote(Answer::Claimed(Claimed {
                fence: Fence::new(number(*fence)?),
                attempt: u32::try_from(*attempt).map_err(|_| strange("a begin"))?,
                checkpoint,
                lease: begin.policy.lease(),
            }))
        }
        [Value::Int(fence), Value::Int(since), Value::BulkString(reason), _held] => {
            wrote(held(*fence, *since, reason)?)
        }
        _ => Err(strange("a begin")),
    }
}

/// The answer to a step that made the operation unknown.
fn held(fence: i64, since: i64, reason: &[u8]) -> StoreResult<Answer> {
    let reason = std::str::from_utf8(reason).ok().and_then(UnknownReason::parse);
    Ok(Answer::Held(UnknownSince {
        fence: Fence::new(number(fence)?),
        since: Timestamp::from_millis(number(since)?),
        reason: reason.ok_or_else(|| strange("a step that holds"))?,
    }))
}

/// The answer to a begin whose script gave a single value: the fence of a claim that is new in
/// every respect, or a word.
fn word_begun(id: &RecordId, begin: &Begin, value: &Value) -> StoreResult<Answered> {
    if let Value::Int(fence) = value {
        let claimed = Claimed {
            fence: Fence::new(number(*fence)?),
            attempt: 1,
            checkpoint: begin.checkpoint.clone(),
            lease: begin.policy.lease(),
        };
        return Ok(Answered { answer: Answer::Claimed(claimed), wrote: true });
    }
    match (word(value), begin.late_from()) {
        (Some(b"late"), Some(since)) => {
            Ok(Answered { answer: Answer::Existing(Existing::Expired(since)), wrote: false })
        }
        (Some(b"damaged"), _) => Err(damaged_head(id)),
        _ => Err(strange("a begin")),
    }
}

/// The answer to a peek.
pub(crate) fn peeked(id: &RecordId, action: &Action, value: &Value) -> StoreResult<Answered> {
    match parts(value) {
        [Value::Int(now), Value::BulkString(record)] => looked(id, action, *now, Some(record)),
        [Value::Int(now), ..] => looked(id, action, *now, None),
        _ => Err(strange("a peek")),
    }
}

/// What the rules themselves say to a record that the script left as it is.
fn looked(
    id: &RecordId,
    action: &Action,
    now: i64,
    record: Option<&Vec<u8>>,
) -> StoreResult<Answered> {
    let asked = match action {
        Action::Begin(begin) => Some((&begin.scope, &begin.key)),
        _ => None,
    };
    let entry = record.map(|bytes| codec::entry(id, bytes, asked)).transpose()?;
    let now = Timestamp::from_millis(number(now)?);
    let decision = transition(entry.as_ref(), action, now, Fence::NONE);
    if decision.change != Change::Keep {
        return Err(strange("the rules: the script kept a record that must change"));
    }
    // The same call of begin again gets its claim again, and must be as sure of it.
    let wrote = matches!(decision.answer, Answer::Claimed(_));
    Ok(Answered { answer: decision.answer, wrote })
}

/// The answer to a write.
pub(crate) fn written(id: &RecordId, value: &Value) -> StoreResult<Answered> {
    let wrote = |answer| Ok(Answered { answer, wrote: true });
    match parts(value) {
        [Value::Int(left)] => {
            return wrote(Answer::Renewed(Duration::from_millis(number(*left)?)));
        }
        [Value::Int(fence), Value::Int(since), Value::BulkString(reason), _held] => {
            return wrote(held(*fence, *since, reason)?);
        }
        _ => {}
    }
    let (answer, wrote) = match word(value) {
        Some(b"applied") => (Answer::Applied, true),
        Some(b"capped") => (Answer::Capped, false),
        Some(b"gone") => (Answer::Lost(Lost::Gone), false),
        Some(b"superseded") => (Answer::Lost(Lost::Superseded), false),
        Some(b"settled") => (Answer::Lost(Lost::Settled), false),
        Some(b"held") => (Answer::Lost(Lost::Held), false),
        Some(b"not_ended") => (Answer::Lost(Lost::NotEnded), false),
        Some(b"not_unknown") => (Answer::Lost(Lost::NotUnknown), false),
        Some(b"damaged") => return Err(damaged_head(id)),
        _ => return Err(strange("a write")),
    };
    Ok(Answered { answer, wrote })
}

/// The answer to a sweep of one record.
pub(crate) fn swept(id: &RecordId, value: &Value) -> StoreResult<Answered> {
    let done = match word(value) {
        Some(b"kept") => SweepDone::Kept,
        Some(b"removed") => SweepDone::Removed,
        Some(b"buried") => SweepDone::Buried,
        Some(b"held") => SweepDone::Held,
        Some(b"damaged") => return Err(damaged_head(id)),
        _ => return Err(strange("a sweep")),
    };
    Ok(Answered { answer: Answer::Swept(done), wrote: done != SweepDone::Kept })
}

/// The parts of an array.
pub(crate) fn parts(value: &Value) -> &[Value] {
    match value {
        Value::Array(parts) => parts,
        _ => &[],
    }
}

fn word(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(word) => Some(word),
        _ => None,
    }
}

/// A number that cannot be negative.
pub(crate) fn number(value: i64) -> StoreResult<u64> {
    u64::try_from(value).map_err(|_| strange("the protocol: a negative number"))
}

/// The script has claimed a record whose checkpoint cannot be read: the claim is there.
fn claimed_damaged(id: &RecordId, damage: justonce_core::Damage) -> StoreError {
    let damaged = DamagedRecord { id: *id, damage };
    StoreError::maybe_applied(StoreErrorKind::Damaged, damaged.to_string()).because(damaged)
}

/// The scripts cannot read the head of a record, and have left it alone.
fn damaged_head(id: &RecordId) -> StoreError {
    let message = format!("record {id} cannot be read by the scripts: its head is damaged");
    StoreError::not_applied(StoreErrorKind::Damaged, message)
}
