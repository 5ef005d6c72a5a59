//! What time alone makes of an entry: ended retentions and lapsed leases.

use super::record::{
    Entry, Failed, InProgress, Record, State, StateName, Tombstone, UnknownReason,
};
use crate::clock::Timestamp;
use crate::policy::{AfterRetention, OnLapsed};

/// What time has made of an entry.
pub(crate) enum View<'a> {
    Absent,
    Buried(Tombstone),
    Kept(&'a Record),
}

/// What time has made of an entry: an ended retention leaves a tombstone or nothing, whether or not
/// a sweep has run yet.
pub(crate) fn view(entry: Option<&Entry>, now: Timestamp) -> View<'_> {
    match entry {
        None => View::Absent,
        Some(Entry::Tombstone(tombstone)) => buried(*tombstone, now),
        Some(Entry::Record(record)) => match ended_retention(record, now) {
            None => View::Kept(record),
            Some((_, AfterRetention::New)) => View::Absent,
            Some((since, AfterRetention::Refuse(life))) => {
                let until = since.after(life);
                buried(Tombstone { fence: record.fence, since, until }, now)
            }
        },
    }
}

fn buried(tombstone: Tombstone, now: Timestamp) -> View<'static> {
    if now < tombstone.until { View::Buried(tombstone) } else { View::Absent }
}

/// When the retention ended and what remains, if it has. It never ends for what is in progress or
/// unknown.
fn ended_retention(record: &Record, now: Timestamp) -> Option<(Timestamp, AfterRetention)> {
    let (ends, after) = match &record.state {
        State::Completed(settled) | State::Failed(Failed::Final(settled)) => {
            (settled.expires_at, settled.after_retention)
        }
        State::Failed(Failed::AwaitingRetry(waiting)) => {
            (waiting.expires_at, waiting.policy.after_retention)
        }
        State::InProgress(_) | State::Unknown(_) => return None,
    };
    (now >= ends).then_some((ends, after))
}

/// What becomes of a lapsed claim.
pub(crate) enum Lapsed {
    /// The next begin takes over.
    Free,
    /// It is not taken over: the operation is unknown.
    Hold(UnknownReason),
}

/// The rule for a lapsed claim.
pub(crate) fn lapsed(claim: &InProgress, attempt: u32) -> Lapsed {
    match claim.policy.on_lapsed {
        OnLapsed::Hold => Lapsed::Hold(UnknownReason::Lapsed),
        OnLapsed::Rerun | OnLapsed::Resume if claim.policy.is_last(attempt) => {
            Lapsed::Hold(UnknownReason::AttemptsExhausted)
        }
        OnLapsed::Rerun | OnLapsed::Resume => Lapsed::Free,
    }
}

/// Whether time has made a claim unknown.
pub(crate) fn is_held(claim: &InProgress, attempt: u32, now: Timestamp) -> bool {
    !claim.is_alive(now) && matches!(lapsed(claim, attempt), Lapsed::Hold(_))
}

/// The state of an entry at `now`, whether or not a sweep has run yet.
#[must_use]
pub fn state_at(entry: &Entry, now: Timestamp) -> StateName {
    match view(Some(entry), now) {
        View::Absent => StateName::Absent,
        View::Buried(_) => StateName::Tombstone,
        View::Kept(record) => match &record.state {
            State::InProgress(claim) if is_held(claim, record.attempt, now) => StateName::Unknown,
            _ => record.state_name(),
        },
    }
}
