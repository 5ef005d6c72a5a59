//! The steps of the protocol and their answers: what goes into a store and what comes out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::record::UnknownReason;
use super::timeline::{HowResolved, Resolver, Why};
use crate::claim::{Checkpoint, Fence, Owner, Token};
use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::policy::{AfterRetention, Policy};
use crate::record_id::RecordId;
use crate::scope::Scope;

/// One step of the protocol on one record. A store takes it atomically.
#[derive(Clone, Debug)]
pub struct Step {
    /// The record.
    pub id: RecordId,
    /// What to do.
    pub action: Action,
    in_doubt: InDoubt,
}

/// Whether a try of a step was not answered. Clones go their own ways.
#[derive(Debug, Default)]
struct InDoubt(AtomicBool);

impl Clone for InDoubt {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Ordering::Relaxed)))
    }
}

/// What to do with a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Claim the operation, or learn what became of it.
    Begin(Box<Begin>),
    /// Learn what became of the operation without ever claiming it.
    Peek(Fingerprint),
    /// Store the outcome.
    Complete(Fence, Outcome),
    /// Store a failure.
    Fail(Fence, Failure),
    /// Give the key back: nothing happened under this claim.
    Release(Fence),
    /// Extend the lease.
    Renew(Fence),
    /// Save a checkpoint.
    Checkpoint(Fence, Checkpoint),
    /// Stop without knowing whether it took effect.
    Abandon(Fence, Abandonment),
    /// Say what became of an unknown operation.
    Resolve(Fence, Box<Resolve>),
    /// End the retention of an operation that has ended: now, instead of when it is over.
    Expire(Fence),
    /// Remove the record of an operation that has ended, and its tombstone: nothing remains.
    Erase(Fence),
    /// Do what time alone demands: end a retention, hold a lapsed claim.
    Sweep,
}

/// A call of begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// Whose namespace the key lives in.
    pub scope: Scope,
    /// The caller's name for the operation.
    pub key: Key,
    /// The digest of what is asked.
    pub fingerprint: Fingerprint,
    /// The policy under which it would be claimed.
    pub policy: Arc<Policy>,
    /// Who would hold the claim.
    pub owner: Owner,
    /// Names this call, so that it can be repeated when its reply was lost.
    pub token: Token,
    /// The checkpoint that a claim starts with if none is handed over to it.
    pub checkpoint: Option<Checkpoint>,
}

/// Why an owner stops without knowing whether its operation took effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Abandonment {
    /// Why.
    pub reason: UnknownReason,
    /// What the owner saw, for operators: kept in the timeline.
    pub cause: Option<Why>,
}

impl From<UnknownReason> for Abandonment {
    fn from(reason: UnknownReason) -> Self {
        Self { reason, cause: None }
    }
}

/// What a handler that failed has to say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// The reply, stored and replayed when the failure is final.
    pub outcome: Outcome,
    /// Whether trying again makes sense.
    pub kind: FailureKind,
    /// A uniform random number for the back-off.
    pub jitter: u32,
}

/// Whether trying a failed operation again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// It did not take effect and may be tried again: the policy decides.
    Passing,
    /// It did not take effect and never will: it is stored and replayed.
    Permanent,
}

/// A resolution: what became of an unknown operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resolve {
    /// What became of it.
    pub resolution: Resolution,
    /// Who resolves it.
    pub by: Resolver,
    /// How they know.
    pub why: Why,
}

/// What became of an unknown operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// It took effect; this is the reply.
    Complete(Outcome),
    /// It failed for good; this is the reply.
    Fail(Outcome),
    /// It did not take effect and never will; the next begin claims it.
    Release,
}

impl Resolution {
    /// How the timeline tells it.
    #[must_use]
    pub const fn how(&self) -> HowResolved {
        match self {
            Self::Complete(_) => HowResolved::Completed,
            Self::Fail(_) => HowResolved::Failed,
            Self::Release => HowResolved::Released,
        }
    }
}

/// What a store answers to a [`Step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a begin: the claim is yours.
    Claimed(Claimed),
    /// To a begin or a peek: what became of the operation.
    Existing(Existing),
    /// To a begin or an abandon: this very step made the operation unknown. Of all steps that find
    /// it unknown one has this answer, so that it can be counted once.
    Held(UnknownSince),
    /// To a peek: a begin could claim it.
    Claimable,
    /// To a write: it was applied, now or by an earlier try of the same write.
    Applied,
    /// To a renewal: it was applied, and this much time is left.
    Renewed(Duration),
    /// To a renewal: the claim has reached its cap and ends when the lease does.
    Capped,
    /// To a write: it changed nothing.
    Lost(Lost),
    /// To a sweep: what it did.
    Swept(SweepDone),
}

/// A claim as begin hands it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Goes with every write.
    pub fence: Fence,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The last checkpoint of the claim before, under `resume`.
    pub checkpoint: Option<Checkpoint>,
    /// How long the claim is honoured without renewal.
    pub lease: Duration,
}

/// What became of an operation that cannot be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is done; this is the reply.
    Completed(Replay),
    /// It failed for good; this is the reply.
    Failed(Replay),
    /// It cannot be had now.
    Busy(Busy),
    /// It is not known whether it took effect.
    Unknown(UnknownSince),
    /// The key was used for something else.
    Mismatch,
    /// It is over since this moment, and late arrivals are refused.
    Expired(Timestamp),
}

/// A stored reply, and how long it still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The reply.
    pub outcome: Outcome,
    /// What is left of the retention.
    pub left: Duration,
}

/// Why and for how long an operation cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Why.
    pub why: BusyWhy,
    /// The fence of the claim.
    pub fence: Fence,
    /// How long the lease or the back-off still runs.
    pub left: Duration,
}

/// Why an operation cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyWhy {
    /// It is being executed.
    Running,
    /// It failed and its back-off is running.
    BackOff,
}

/// Since when and why an operation is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSince {
    /// The fence of the claim; a resolution must name it.
    pub fence: Fence,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: UnknownReason,
}

/// Why a write changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// There is no record, or its retention is over.
    Gone,
    /// Another claim was granted since.
    Superseded,
    /// The operation has already ended in another way.
    Settled,
    /// The operation is held as unknown: no renewals and no checkpoints.
    Held,
    /// A resolution met an operation that is not unknown.
    NotUnknown,
    /// An operation that has not ended cannot be expired or erased.
    NotEnded,
}

/// What a sweep did with one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SweepDone {
    /// Nothing: the record must stay as it is.
    Kept,
    /// It was removed.
    Removed,
    /// It became a tombstone.
    Buried,
    /// It became unknown.
    Held,
}

impl Step {
    /// A begin of this operation.
    #[must_use]
    pub fn begin(operation: &Operation, owner: Owner, token: Token) -> Self {
        let begin = Begin {
            scope: operation.scope().clone(),
            key: operation.key().clone(),
            fingerprint: operation.fingerprint(),
            policy: Arc::clone(operation.policy()),
            owner,
            token,
            checkpoint: operation.first_checkpoint().cloned(),
        };
        Self::new(operation.id(), Action::Begin(Box::new(begin)))
    }

    /// Any other step on a record.
    #[must_use]
    pub const fn new(id: RecordId, action: Action) -> Self {
        Self { id, action, in_doubt: InDoubt(AtomicBool::new(false)) }
    }

    /// Notes that a try of this very step was not answered, and that it is tried again: the store
    /// may carry the first try out after the answer to a later one. A layer that repeats a
    /// step must call this.
    pub fn put_in_doubt(&self) {
        self.in_doubt.0.store(true, Ordering::Relaxed);
    }

    /// Whether the store may carry this step out again after it has answered.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.0.load(Ordering::Relaxed)
    }
}

impl Begin {
    /// From when on a begin that finds nothing is a late arrival: its key says when it was issued
    /// (a UUIDv7), the retention since then is over, and late arrivals are to be refused.
    #[must_use]
    pub fn late_from(&self) -> Option<Timestamp> {
        match self.policy.after_retention() {
            AfterRetention::New => None,
            AfterRetention::Refuse(_) => {
                self.key.issued_at().map(|issued| issued.after(self.policy.retention()))
            }
        }
    }
}

impl Action {
    /// The fence that a write carries.
    #[must_use]
    pub const fn fence(&self) -> Option<Fence> {
        match self {
            Self::Begin(_) | Self::Peek(_) | Self::Sweep => None,
            Self::Complete(fence, _)
            | Self::Fail(fence, _)
            | Self::Release(fence)
            | Self::Renew(fence)
            | Self::Checkpoint(fence, _)
            | Self::Abandon(fence, _)
            | Self::Resolve(fence, _)
            | Self::Expire(fence)
            | Self::Erase(fence) => Some(*fence),
        }
    }

    /// The name of the step in metrics and messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Begin(_) => "begin",
            Self::Peek(_) => "peek",
            Self::Complete(..) => "complete",
            Self::Fail(..) => "fail",
            Self::Release(_) => "release",
            Self::Renew(_) => "renew",
            Self::Checkpoint(..) => "checkpoint",
            Self::Abandon(..) => "abandon",
            Self::Resolve(..) => "resolve",
            Self::Expire(_) => "expire",
            Self::Erase(_) => "erase",
            Self::Sweep => "sweep",
        }
    }

    /// Whether a step whose reply was lost may be sent again without harm: a begin by its token,
    /// the writes by their fence. A repeated release, expire or erase may say *lost* where the
    /// first would have said *applied*; either way what it was to remove is not there.
    #[must_use]
    pub const fn is_repeatable(&self) -> bool {
        match self {
            Self::Begin(_) | Self::Peek(_) | Self::Sweep => true,
            _ => self.fence().is_some(),
        }
    }
}

impl Existing {
    /// The reply of an operation that is done.
    #[must_use]
    pub const fn completed(&self) -> Option<&Outcome> {
        match self {
            Self::Completed(replay) => Some(&replay.outcome),
            _ => None,
        }
    }

    /// The reply of an operation that failed for good.
    #[must_use]
    pub const fn failed(&self) -> Option<&Outcome> {
        match self {
            Self::Failed(replay) => Some(&replay.outcome),
            _ => None,
        }
    }
}

impl Answer {
    /// The stored reply of an operation that is done.
    #[must_use]
    pub const fn completed(&self) -> Option<&Outcome> {
        match self {
            Self::Existing(existing) => existing.completed(),
            _ => None,
        }
    }

    /// The name of the answer in metrics and messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed(_) => "claimed",
            Self::Existing(Existing::Completed(_)) => "completed",
            Self::Existing(Existing::Failed(_)) => "failed",
            Self::Existing(Existing::Busy(_)) => "busy",
            Self::Existing(Existing::Unknown(_)) => "unknown",
            Self::Existing(Existing::Mismatch) => "mismatch",
            Self::Existing(Existing::Expired(_)) => "expired",
            Self::Held(_) => "held",
            Self::Claimable => "claimable",
            Self::Applied => "applied",
            Self::Renewed(_) => "renewed",
            Self::Capped => "capped",
            Self::Lost(_) => "lost",
            Self::Swept(_) => "swept",
        }
    }
}
