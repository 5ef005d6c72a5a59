//! Replies of the statements become answers of the protocol.

use std::error::Error;

use justonce_core::{
    Answer, Busy, BusyWhy, Checkpoint, Claimed, Existing, Lost, RecordId, Replay, StoreError,
    StoreErrorKind, StoreResult, Timestamp, UnknownSince,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::error::{damaged, locked};
use crate::numbers::{duration, fence, small, timestamp};
use crate::read;

/// The fields of `begin_3`, in their order.
#[derive(Clone, Copy, Debug)]
enum Field {
    Answer,
    Fence,
    Attempt,
    Left,
    Since,
    Reason,
    Outcome,
    PointName,
    PointData,
    PointNumber,
}

/// How many fields there are.
const FIELDS: usize = 10;

/// The value of `begin_3`: the bytes of its fields.
#[derive(Debug)]
pub(crate) struct Begun<'a>([Option<&'a [u8]>; FIELDS]);

impl<'a> FromSql<'a> for Begun<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let (count, mut rest) = number(raw).ok_or(CUT)?;
        if usize::try_from(count) != Ok(FIELDS) {
            return Err(format!("an answer has {count} fields").into());
        }
        let mut fields = [None; FIELDS];
        for field in &mut fields {
            let (_type, after) = number(rest).ok_or(CUT)?;
            let (length, after) = number(after).ok_or(CUT)?;
            rest = after;
            // A negative length means NULL.
            if let Ok(length) = usize::try_from(length) {
                let (value, after) = rest.split_at_checked(length).ok_or(CUT)?;
                (*field, rest) = (Some(value), after);
            }
        }
        Ok(Self(fields))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::RECORD
    }
}

const CUT: &str = "an answer is cut";

/// A number of four bytes, and what comes after it.
fn number(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*number), rest))
}

impl<'a> Begun<'a> {
    /// The answer of a begin or a peek on this record.
    pub(crate) fn answer(&self, id: &RecordId) -> StoreResult<Answer> {
        let existing = match self.text(Field::Answer)? {
            // Even if its fields cannot be read, the claim exists.
            "claimed" => {
                let claimed = self.claimed().map(Answer::Claimed);
                return claimed.map_err(|error| claimed_damaged(id, error));
            }
            "claimable" => return Ok(Answer::Claimable),
            "completed" => Existing::Completed(self.replay(id)?),
            "failed" => Existing::Failed(self.replay(id)?),
            "running" => Existing::Busy(self.busy(BusyWhy::Running)?),
            "back_off" => Existing::Busy(self.busy(BusyWhy::BackOff)?),
            "unknown" => Existing::Unknown(UnknownSince {
                fence: fence(self.long(Field::Fence)?)?,
                since: timestamp("since", self.long(Field::Since)?)?,
                reason: read::reason(self.text(Field::Reason)?)?,
            }),
            "locked" => return Err(locked()),
            "mismatch" => Existing::Mismatch,
            "expired" => Existing::Expired(timestamp("since", self.long(Field::Since)?)?),
            other => return Err(unexpected("begin", other)),
        };
        Ok(Answer::Existing(existing))
    }

    fn claimed(&self) -> StoreResult<Claimed> {
        Ok(Claimed {
            fence: fence(self.long(Field::Fence)?)?,
            attempt: small("attempt", self.long(Field::Attempt)?)?,
            checkpoint: self.checkpoint()?,
            lease: duration("left", self.long(Field::Left)?)?,
        })
    }

    fn checkpoint(&self) -> StoreResult<Option<Checkpoint>> {
        let Some(name) = self.field(Field::PointName) else {
            return Ok(None);
        };
        let (data, number) = (self.needed(Field::PointData)?, self.long(Field::PointNumber)?);
        read::checkpoint(name, data, number).map(Some)
    }

    fn replay(&self, id: &RecordId) -> StoreResult<Replay> {
        let outcome = read::outcome(id, self.needed(Field::Outcome)?)?;
        Ok(Replay { outcome, left: duration("left", self.long(Field::Left)?)? })
    }

    fn busy(&self, why: BusyWhy) -> StoreResult<Busy> {
        let left = duration("left", self.long(Field::Left)?)?;
        Ok(Busy { why, fence: fence(self.long(Field::Fence)?)?, left })
    }

    fn field(&self, field: Field) -> Option<&'a [u8]> {
        self.0.get(field as usize).copied().flatten()
    }

    fn needed(&self, field: Field) -> StoreResult<&'a [u8]> {
        self.field(field).ok_or_else(|| missing(field))
    }

    fn text(&self, field: Field) -> StoreResult<&'a str> {
        std::str::from_utf8(self.needed(field)?).map_err(damaged)
    }

    fn long(&self, field: Field) -> StoreResult<i64> {
        let bytes = self.needed(field)?.try_into().map_err(|_| missing(field))?;
        Ok(i64::from_be_bytes(bytes))
    }
}

/// The answer of a begin, from the column `begun` of its row. The second column behind it lists the
/// operations that the transaction made unknown: see migration 11.
pub(crate) fn begin_answer(row: &Row, begun: usize, id: &RecordId) -> StoreResult<Answer> {
    let answer = row.try_get::<_, Begun<'_>>(begun).map_err(damaged)?.answer(id)?;
    let held: Option<&str> = row.try_get(begun + 2).map_err(damaged)?;
    Ok(match answer {
        Answer::Existing(Existing::Unknown(unknown))
            if held_since(held.unwrap_or_default(), id).is_some() =>
        {
            Answer::Held(unknown)
        }
        other => other,
    })
}

/// Since when an operation is unknown, if it is in the list.
pub(crate) fn held_since(held: &str, id: &RecordId) -> Option<Timestamp> {
    let mut all = held_in(held);
    all.find(|(held, _)| held == id).map(|(_, since)| since)
}

/// The operations in the list, and since when they are unknown.
pub(crate) fn held_in(held: &str) -> impl Iterator<Item = (RecordId, Timestamp)> {
    held.split_terminator(',').filter_map(|line| {
        let (id, since) = line.split_once(' ')?;
        Some((RecordId::parse(id)?, Timestamp::from_millis(since.parse().ok()?)))
    })
}

/// The answer of a write.
pub(crate) fn written(step: &str, answer: &str, left: Option<i64>) -> StoreResult<Answer> {
    Ok(match answer {
        "applied" => Answer::Applied,
        "renewed" => Answer::Renewed(duration("o_left", left.unwrap_or_default())?),
        "capped" => Answer::Capped,
        "gone" => Answer::Lost(Lost::Gone),
        "superseded" => Answer::Lost(Lost::Superseded),
        "settled" => Answer::Lost(Lost::Settled),
        "held" => Answer::Lost(Lost::Held),
        "not_ended" => Answer::Lost(Lost::NotEnded),
        "not_unknown" => Answer::Lost(Lost::NotUnknown),
        other => return Err(unexpected(step, other)),
    })
}

/// A function answered something that this release does not know: a schema of another release.
fn unexpected(step: &str, answer: &str) -> StoreError {
    let message = format!("PostgreSQL answered {answer:?} to {step}");
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}

/// A begin has claimed a record and cannot read its fields.
fn claimed_damaged(id: &RecordId, error: StoreError) -> StoreError {
    let message = format!("record {id} was claimed, and is damaged");
    StoreError::maybe_applied(StoreErrorKind::Damaged, message).because(error)
}

fn missing(field: Field) -> StoreError {
    damaged(format!("{field:?} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value as the server sends it.
    fn sent(fields: &[Option<&[u8]>]) -> Vec<u8> {
        let length = |length: usize| i32::try_from(length).unwrap();
        let mut bytes = length(fields.len()).to_be_bytes().to_vec();
        for field in fields {
            bytes.extend(25_i32.to_be_bytes());
            bytes.extend(field.map_or(-1, |field| length(field.len())).to_be_bytes());
            bytes.extend(field.unwrap_or_default());
        }
        bytes
    }

    #[test]
    fn an_answer_is_read_or_refused_but_never_guessed() {
        let id = RecordId::from_bytes([7; 32]);
        let seven = 7_i64.to_be_bytes();
        let mut fields = [None; FIELDS];
        (fields[0], fields[1]) = (Some(&b"running"[..]), Some(&seven[..]));
        fields[3] = Some(&seven[..]);
        let whole = sent(&fields);
        let begun = Begun::from_sql(&Type::RECORD, &whole).unwrap();
        let Answer::Existing(Existing::Busy(busy)) = begun.answer(&id).unwrap() else {
            panic!("{begun:?}")
        };
        assert_eq!((busy.fence.get(), busy.left.as_millis()), (7, 7));
        for cut in 0..whole.len() {
            let part = whole.get(..cut).unwrap();
            assert!(Begun::from_sql(&Type::RECORD, part).is_err(), "{cut} bytes were enough");
        }
        assert!(Begun::from_sql(&Type::RECORD, &sent(&[None; 3])).is_err());
        for (field, strange) in [(0, &b"x"[..]), (0, b"\xff"), (1, b"short"), (3, b"")] {
            let mut fields = fields;
            fields[field] = Some(strange);
            let bytes = sent(&fields);
            let begun = Begun::from_sql(&Type::RECORD, &bytes).unwrap();
            assert!(begun.answer(&id).is_err(), "{begun:?}");
        }
    }
}
