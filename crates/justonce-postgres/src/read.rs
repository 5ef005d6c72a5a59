//! Reads records. Nothing in a row is trusted: anything unexpected is a damaged record.

use std::sync::Arc;

use justonce_core::codec::decode_outcome;
use justonce_core::store::Stored;
use justonce_core::{
    AwaitingRetry, Checkpoint, Damage, DamagedRecord, Entry, Failed, Fingerprint, InProgress, Key,
    Outcome, Owner, Record, RecordId, Scope, Settled, State, StoreResult, Subject, Timeline,
    Timestamp, Token, Tombstone, Unknown, UnknownReason,
};
use tokio_postgres::Row;

use crate::error::damaged;
use crate::numbers::{fence, small, timestamp};
use crate::policy::{after_retention, policy};
use crate::row::{column, needed};
use crate::timeline_codec::note;

/// The selected columns of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// No outcome and no checkpoint.
    Summary,
}

/// The id of a record.
pub(crate) fn id(row: &Row) -> StoreResult<RecordId> {
    let bytes: &[u8] = needed(row, "id")?;
    let bytes = bytes.try_into().map_err(|_| damaged("its name is no hash"))?;
    Ok(RecordId::from_bytes(bytes))
}

/// A whole row: the entry and its history.
pub(crate) fn stored(row: &Row) -> StoreResult<Stored> {
    let lines: Vec<&str> = needed(row, "notes")?;
    let notes = lines
        .into_iter()
        .map(|line| note(line).ok_or_else(|| damaged(format!("a note says {line:?}"))));
    let notes = notes.collect::<StoreResult<Vec<_>>>()?;
    let dropped = small("notes_dropped", needed(row, "notes_dropped")?)?;
    let timeline = Timeline::from_parts(notes, dropped);
    Ok(Stored { entry: entry(row, Part::Whole)?, timeline })
}

/// The record or tombstone of a row.
pub(crate) fn entry(row: &Row, part: Part) -> StoreResult<Entry> {
    let moment = |name| timestamp(name, needed(row, name)?);
    let state: &str = needed(row, "state")?;
    let given = fence(needed(row, "fence")?)?;
    let changed_at = moment("changed_at")?;
    if state == "tombstone" {
        let until = moment("expires_at")?;
        return Ok(Entry::Tombstone(Tombstone { fence: given, since: changed_at, until }));
    }
    Ok(Entry::Record(Record {
        subject: Arc::new(subject(row)?),
        fence: given,
        attempt: small("attempt", needed(row, "attempt")?)?,
        changed_at,
        state: match state {
            "in_progress" => State::InProgress(in_progress(row, part)?),
            "completed" => State::Completed(settled(row, part)?),
            "failed" => State::Failed(Failed::Final(settled(row, part)?)),
            "waiting" => State::Failed(Failed::AwaitingRetry(AwaitingRetry {
                failure: reply(row, part)?,
                retry_at: moment("retry_at")?,
                expires_at: moment("expires_at")?,
                policy: policy(row)?,
                checkpoint: checkpoint_of(row, part)?,
            })),
            "unknown" => State::Unknown(Unknown {
                reason: reason(needed(row, "reason")?)?,
                owner: Owner::new(needed(row, "owner")?),
                policy: policy(row)?,
                checkpoint: checkpoint_of(row, part)?,
            }),
            other => return Err(damaged(format!("its state is {other:?}"))),
        },
    }))
}

fn subject(row: &Row) -> StoreResult<Subject> {
    let print: &[u8] = needed(row, "fingerprint")?;
    let (version, digest) = print.split_first().ok_or_else(|| damaged("no fingerprint"))?;
    let digest = digest.try_into().map_err(|_| damaged("its fingerprint is cut"))?;
    let created_at: Timestamp = timestamp("created_at", needed(row, "created_at")?)?;
    Ok(Subject {
        scope: Scope::parse(needed(row, "scope")?).map_err(damaged)?,
        key: Key::client(needed::<&str>(row, "key")?).map_err(damaged)?,
        fingerprint: Fingerprint::from_parts(*version, digest),
        created_at,
    })
}

fn in_progress(row: &Row, part: Part) -> StoreResult<InProgress> {
    let token: &[u8] = needed(row, "token")?;
    let token = token.try_into().map_err(|_| damaged("its token is cut"))?;
    Ok(InProgress {
        owner: Owner::new(needed(row, "owner")?),
        token: Token(u128::from_be_bytes(token)),
        claimed_at: timestamp("claimed_at", needed(row, "claimed_at")?)?,
        lease_until: timestamp("lease_until", needed(row, "lease_until")?)?,
        policy: policy(row)?,
        checkpoint: checkpoint_of(row, part)?,
    })
}

fn settled(row: &Row, part: Part) -> StoreResult<Settled> {
    Ok(Settled {
        outcome: reply(row, part)?,
        expires_at: timestamp("expires_at", needed(row, "expires_at")?)?,
        after_retention: after_retention(row)?,
    })
}

fn reply(row: &Row, part: Part) -> StoreResult<Outcome> {
    match part {
        // A summary has no outcome, but shows whether it is empty.
        Part::Summary => Ok(match column::<Option<bool>>(row, "is_empty")? {
            Some(false) => Outcome::bytes("not read"),
            Some(true) | None => Outcome::empty(),
        }),
        Part::Whole => outcome(&id(row)?, needed(row, "outcome")?),
    }
}

fn checkpoint_of(row: &Row, part: Part) -> StoreResult<Option<Checkpoint>> {
    if part == Part::Summary {
        return Ok(None);
    }
    let name: Option<&[u8]> = column(row, "point_name")?;
    name.map(|name| checkpoint(name, needed(row, "point_data")?, needed(row, "point_number")?))
        .transpose()
}

/// A checkpoint from its columns.
pub(crate) fn checkpoint(name: &[u8], data: &[u8], number: i64) -> StoreResult<Checkpoint> {
    let name = std::str::from_utf8(name).map_err(damaged)?;
    let point = Checkpoint::new(name, data.to_vec()).map_err(damaged)?;
    Ok(point.numbered(small("point_number", number)?))
}

/// An outcome from its bytes.
pub(crate) fn outcome(id: &RecordId, bytes: &[u8]) -> StoreResult<Outcome> {
    let damaged = |damage: Damage| DamagedRecord { id: *id, damage };
    Ok(decode_outcome(bytes).map_err(damaged)?)
}

/// Why an operation is unknown, by its name.
pub(crate) fn reason(name: &str) -> StoreResult<UnknownReason> {
    UnknownReason::parse(name).ok_or_else(|| damaged(format!("its reason is {name:?}")))
}
