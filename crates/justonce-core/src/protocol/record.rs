//! What the store keeps for one (scope, key).

use std::fmt;
use std::sync::Arc;

use super::timeline::Timeline;
use crate::claim::{Checkpoint, Fence, Owner, Token};
use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::Outcome;
use crate::policy::{AfterRetention, OnLapsed, Policy};
use crate::scope::Scope;

/// What the store keeps under one [`RecordId`](crate::RecordId).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The record of an operation.
    Record(Record),
    /// What remains after its retention.
    Tombstone(Tombstone),
}

/// What a store keeps under one name: the entry and the history beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The record or tombstone.
    pub entry: Entry,
    /// What happened to it.
    pub timeline: Timeline,
}

/// The record of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// What never changes while the record lives.
    pub subject: Arc<Subject>,
    /// The fence of the last claim.
    pub fence: Fence,
    /// How often it was claimed.
    pub attempt: u32,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// What became of it.
    pub state: State,
}

/// Which operation a record is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Whose namespace the key lives in.
    pub scope: Scope,
    /// The caller's name for the operation.
    pub key: Key,
    /// The digest of what was asked.
    pub fingerprint: Fingerprint,
    /// When it was first begun.
    pub created_at: Timestamp,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The claim is held, or was and has lapsed.
    InProgress(InProgress),
    /// It took effect, and this is the reply.
    Completed(Settled),
    /// It failed, for now or for good.
    Failed(Failed),
    /// It was started, and it is not known whether it took effect.
    Unknown(Unknown),
}

/// A claim as the record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InProgress {
    /// Who holds it.
    pub owner: Owner,
    /// The call of begin that took it.
    pub token: Token,
    /// When it was taken.
    pub claimed_at: Timestamp,
    /// Until when it is honoured.
    pub lease_until: Timestamp,
    /// The policy under which it was taken.
    pub policy: Arc<Policy>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
}

/// An end that is replayed until the retention is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settled {
    /// The reply.
    pub outcome: Outcome,
    /// When the retention ends.
    pub expires_at: Timestamp,
    /// What remains then.
    pub after_retention: AfterRetention,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Failed {
    /// It may be tried again from a moment on.
    AwaitingRetry(AwaitingRetry),
    /// It is stored and replayed.
    Final(Settled),
}

/// A failure whose back-off is running or over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwaitingRetry {
    /// The handler's result.
    pub failure: Outcome,
    /// When it may be tried again.
    pub retry_at: Timestamp,
    /// When it is forgotten without another attempt.
    pub expires_at: Timestamp,
    /// The policy under which it ran.
    pub policy: Arc<Policy>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
}

/// An operation of which it is not known whether it took effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unknown {
    /// Why it is not known.
    pub reason: UnknownReason,
    /// Who held the claim.
    pub owner: Owner,
    /// The policy under which it ran.
    pub policy: Arc<Policy>,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
}

/// Why it is not known whether an operation took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnknownReason {
    /// The owner stopped renewing its lease.
    Lapsed,
    /// The lease lapsed on the last attempt that was allowed.
    AttemptsExhausted,
    /// The handler was still running when its time was over.
    TimedOut,
    /// The handler panicked.
    Panicked,
    /// The handler's future was dropped before it ended.
    Dropped,
    /// The handler returned that it does not know.
    Reported,
}

impl UnknownReason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Lapsed,
        Self::AttemptsExhausted,
        Self::TimedOut,
        Self::Panicked,
        Self::Dropped,
        Self::Reported,
    ];

    /// The name as it is kept and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lapsed => "lapsed",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::Dropped => "dropped",
            Self::Reported => "reported",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// What remains after retention if late arrivals must be refused: a hash and a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tombstone {
    /// The fence of the last claim.
    pub fence: Fence,
    /// When the retention ended.
    pub since: Timestamp,
    /// Until when late arrivals are refused.
    pub until: Timestamp,
}

/// The states by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateName {
    /// Nothing is kept.
    Absent,
    /// [`State::InProgress`].
    InProgress,
    /// [`State::Completed`].
    Completed,
    /// [`State::Failed`].
    Failed,
    /// [`State::Failed`] as a release leaves it: nothing went wrong, and the next begin claims at
    /// once. What was before is remembered.
    Released,
    /// [`State::Unknown`].
    Unknown,
    /// [`Entry::Tombstone`].
    Tombstone,
}

impl StateName {
    /// All states in the order of the protocol.
    pub const ALL: [Self; 7] = [
        Self::Absent,
        Self::InProgress,
        Self::Completed,
        Self::Failed,
        Self::Released,
        Self::Unknown,
        Self::Tombstone,
    ];

    /// The name as it is written in documents, metrics and the admin API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::Tombstone => "tombstone",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Entry {
    /// The state as it is stored, whatever the time.
    #[must_use]
    pub fn state_name(&self) -> StateName {
        match self {
            Self::Record(record) => record.state_name(),
            Self::Tombstone(_) => StateName::Tombstone,
        }
    }

    /// The fence of the last claim.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        match self {
            Self::Record(record) => record.fence,
            Self::Tombstone(tombstone) => tombstone.fence,
        }
    }

    /// The record, unless only a tombstone remains.
    #[must_use]
    pub const fn record(&self) -> Option<&Record> {
        match self {
            Self::Record(record) => Some(record),
            Self::Tombstone(_) => None,
        }
    }

    /// When the store may forget or shrink the entry; nothing while it must keep it.
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Tombstone(tombstone) => Some(tombstone.until),
            Self::Record(record) => match &record.state {
                State::Completed(settled) | State::Failed(Failed::Final(settled)) => {
                    Some(settled.expires_at)
                }
                State::Failed(Failed::AwaitingRetry(waiting)) => Some(waiting.expires_at),
                State::InProgress(_) | State::Unknown(_) => None,
            },
        }
    }
}

impl Record {
    /// The name of the state as it is stored, whatever the time.
    #[must_use]
    pub fn state_name(&self) -> StateName {
        match &self.state {
            State::InProgress(_) => StateName::InProgress,
            State::Completed(_) => StateName::Completed,
            State::Failed(Failed::AwaitingRetry(waiting)) if self.is_free(waiting) => {
                StateName::Released
            }
            State::Failed(_) => StateName::Failed,
            State::Unknown(_) => StateName::Unknown,
        }
    }

    /// Whether this is what a release leaves behind: no back-off, and nothing to say.
    pub(crate) fn is_free(&self, waiting: &AwaitingRetry) -> bool {
        waiting.retry_at == self.changed_at && waiting.failure == Outcome::empty()
    }
}

impl InProgress {
    /// Whether the lease is honoured at `now`. At the very moment it ends, it no longer is.
    #[must_use]
    pub fn is_alive(&self, now: Timestamp) -> bool {
        now < self.lease_until
    }

    /// The checkpoint that a new claim receives.
    #[must_use]
    pub(crate) fn handed_over(&self) -> Option<Checkpoint> {
        handed_over(&self.policy, self.checkpoint.as_ref())
    }
}

/// Only `resume` hands checkpoints over; under `rerun` the new claim starts from the beginning.
pub(crate) fn handed_over(policy: &Policy, last: Option<&Checkpoint>) -> Option<Checkpoint> {
    // The new claim counts its own points from the beginning.
    last.filter(|_| policy.on_lapsed == OnLapsed::Resume).map(|point| point.clone().numbered(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_back_as_they_are_shown() {
        for state in StateName::ALL {
            assert_eq!(StateName::parse(state.as_str()), Some(state));
        }
    }
}
