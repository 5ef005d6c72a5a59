//! Replies of the scripts become answers of the protocol.

use std::time::Duration;

use justonce_core::{
    Action, Answer, Begin, Change, Claimed, Damage, DamagedRecord, Existing, Fence, Lost, RecordId,
    Step, StoreError, StoreErrorKind, StoreResult, SweepDone, Timestamp, UnknownReason,
    UnknownSince, transition,
};
use redis::Value;

use crate::codec;
use crate::error::unexpected;

/// The answer to a step, and whether replicas have to confirm it.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) wrote: bool,
}

impl Answered {
    const fn wrote(answer: Answer) -> Self {
        Self { answer, wrote: true }
    }

    const fn read(answer: Answer) -> Self {
        Self { answer, wrote: false }
    }
}

/// The answer to a step, from the reply of its script.
pub(crate) fn answered(step: &Step, value: &Value) -> StoreResult<Answered> {
    match &step.action {
        Action::Begin(begin) => begun(step, begin, value),
        Action::Peek(_) => match parts(value) {
            [Value::Int(now), Value::BulkString(record)] => decided(step, *now, Some(record)),
            [Value::Int(now), ..] => decided(step, *now, None),
            _ => Err(unexpected("a peek")),
        },
        Action::Sweep => swept(&step.id, value),
        _ => written(&step.id, value),
    }
}

fn begun(step: &Step, begin: &Begin, value: &Value) -> StoreResult<Answered> {
    let id = &step.id;
    let claimed = |fence: i64, attempt, checkpoint| {
        let (fence, lease) = (Fence::new(number(fence)?), begin.policy.lease());
        let claimed = Claimed { fence, attempt, checkpoint, lease };
        Ok(Answered::wrote(Answer::Claimed(claimed)))
    };
    match parts(value) {
        [] => match (value, begin.late_from()) {
            // Only the fence of a first claim depends on the server.
            (Value::Int(fence), _) => claimed(*fence, 1, begin.checkpoint.clone()),
            (Value::BulkString(word), Some(since)) if word == b"late" => {
                Ok(Answered::read(Answer::Existing(Existing::Expired(since))))
            }
            (Value::BulkString(word), _) if word == b"damaged" => Err(damaged_head(id)),
            _ => Err(unexpected("a begin")),
        },
        [Value::Int(now), Value::BulkString(record)] => decided(step, *now, Some(record)),
        [Value::Int(fence), Value::Int(attempt), Value::BulkString(bytes)] => {
            let checkpoint = match bytes.as_slice() {
                [] => None,
                bytes => Some(
                    codec::read_checkpoint(bytes).map_err(|damage| claimed_damaged(*id, damage))?,
                ),
            };
            let attempt = u32::try_from(*attempt).map_err(|_| unexpected("a begin"))?;
            claimed(*fence, attempt, checkpoint)
        }
        [Value::Int(fence), Value::Int(since), Value::BulkString(reason), _held] => {
            held(*fence, *since, reason)
        }
        _ => Err(unexpected("a begin")),
    }
}

/// The answer to a step that made the operation unknown.
fn held(fence: i64, since: i64, reason: &[u8]) -> StoreResult<Answered> {
    let reason = std::str::from_utf8(reason).ok().and_then(UnknownReason::parse);
    Ok(Answered::wrote(Answer::Held(UnknownSince {
        fence: Fence::new(number(fence)?),
        since: Timestamp::from_millis(number(since)?),
        reason: reason.ok_or_else(|| unexpected("a step that holds"))?,
    })))
}

/// The decision of the rules about a record that the script did not change.
fn decided(step: &Step, now: i64, record: Option<&Vec<u8>>) -> StoreResult<Answered> {
    let requested = match &step.action {
        Action::Begin(begin) => Some((&begin.scope, &begin.key)),
        _ => None,
    };
    let entry = record.map(|bytes| codec::entry(&step.id, bytes, requested)).transpose()?;
    let now = Timestamp::from_millis(number(now)?);
    let decision = transition(entry.as_ref(), &step.action, now, Fence::NONE);
    if decision.change != Change::Keep {
        return Err(unexpected("the rules: the script kept a record that must change"));
    }
    // A repeated begin gets its claim again, and replicas have to confirm it again.
    let wrote = matches!(decision.answer, Answer::Claimed(_));
    Ok(Answered { answer: decision.answer, wrote })
}

fn written(id: &RecordId, value: &Value) -> StoreResult<Answered> {
    match parts(value) {
        [Value::Int(left)] => {
            let left = Duration::from_millis(number(*left)?);
            return Ok(Answered::wrote(Answer::Renewed(left)));
        }
        [Value::Int(fence), Value::Int(since), Value::BulkString(reason), _held] => {
            return held(*fence, *since, reason);
        }
        _ => {}
    }
    Ok(Answered::read(match word(value) {
        b"applied" => return Ok(Answered::wrote(Answer::Applied)),
        b"capped" => Answer::Capped,
        b"gone" => Answer::Lost(Lost::Gone),
        b"superseded" => Answer::Lost(Lost::Superseded),
        b"settled" => Answer::Lost(Lost::Settled),
        b"held" => Answer::Lost(Lost::Held),
        b"not_ended" => Answer::Lost(Lost::NotEnded),
        b"not_unknown" => Answer::Lost(Lost::NotUnknown),
        b"damaged" => return Err(damaged_head(id)),
        _ => return Err(unexpected("a write")),
    }))
}

/// Replicas do not confirm a sweep: one that is lost is repeated.
fn swept(id: &RecordId, value: &Value) -> StoreResult<Answered> {
    Ok(Answered::read(Answer::Swept(match word(value) {
        b"kept" => SweepDone::Kept,
        b"removed" => SweepDone::Removed,
        b"buried" => SweepDone::Buried,
        b"held" => SweepDone::Held,
        b"damaged" => return Err(damaged_head(id)),
        _ => return Err(unexpected("a sweep")),
    })))
}

/// The parts of an array.
pub(crate) fn parts(value: &Value) -> &[Value] {
    match value {
        Value::Array(parts) => parts,
        _ => &[],
    }
}

fn word(value: &Value) -> &[u8] {
    match value {
        Value::BulkString(word) => word,
        _ => &[],
    }
}

/// A number that cannot be negative.
pub(crate) fn number(value: i64) -> StoreResult<u64> {
    u64::try_from(value).map_err(|_| unexpected("the protocol: a negative number"))
}

/// The id of a record as an index holds it.
pub(crate) fn id(value: &Value) -> StoreResult<RecordId> {
    let bytes = match value {
        Value::BulkString(bytes) => bytes.as_slice().try_into().ok(),
        _ => None,
    };
    bytes.map(RecordId::from_bytes).ok_or_else(|| unexpected("an index"))
}

/// The script has claimed a record whose checkpoint cannot be read. The claim exists.
fn claimed_damaged(id: RecordId, damage: Damage) -> StoreError {
    let damaged = DamagedRecord { id, damage };
    StoreError::maybe_applied(StoreErrorKind::Damaged, damaged.to_string()).because(damaged)
}

/// The scripts could not read the head of a record, and did not change it.
fn damaged_head(id: &RecordId) -> StoreError {
    let message = format!("record {id} cannot be read by the scripts: its head is damaged");
    StoreError::not_applied(StoreErrorKind::Damaged, message)
}
