//! What a run can end with.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::outcome::Outcome;
use crate::record::UnknownReason;
use crate::step::{Busy, Existing, UnknownSince};

/// How a run ended. Every case but the first two leaves the caller without an outcome of its own
/// doing, and says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The handler ran here and now, and its outcome is stored.
    Executed(Outcome),
    /// The operation was done before; this is the stored outcome.
    Replayed(Outcome),
    /// The handler failed here and now; what becomes of the operation is the policy's business.
    Failed(Outcome),
    /// The operation failed for good before; this is the stored failure.
    FailedBefore(Outcome),
    /// The handler said that nothing happened; the key is free.
    Released,
    /// Somebody else executes it, or its back-off is running.
    Busy(Busy),
    /// Nobody can tell whether it took effect.
    Unknown(UnknownSince),
    /// The handler gave no outcome here and now: its time was over, or it does not know. It may
    /// have happened. Under `hold` the operation is unknown now, otherwise the next begin takes
    /// over.
    Abandoned(UnknownReason),
    /// The handler ended here and now with an error that its author did not classify, under
    /// `hold`: it may have happened, and the operation is unknown. This is the error's message.
    /// See [`HandlerError::Unclassified`](super::HandlerError::Unclassified).
    Unclassified(Outcome),
    /// Another owner took the operation over while the handler ran; this is its outcome, if it
    /// has one already.
    Superseded(Option<Outcome>),
    /// The key was used for something else.
    Mismatch,
    /// The operation is over since this moment, and late arrivals are refused.
    Expired(Timestamp),
}

impl Ran {
    /// The outcome of the operation, wherever it came from.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Executed(outcome) | Self::Replayed(outcome) | Self::Superseded(Some(outcome)) => {
                Some(outcome)
            }
            _ => None,
        }
    }
}

impl From<Existing> for Ran {
    /// What a caller hears of an operation that it did not execute.
    fn from(existing: Existing) -> Self {
        match existing {
            Existing::Completed(replay) => Self::Replayed(replay.outcome),
            Existing::Failed(replay) => Self::FailedBefore(replay.outcome),
            Existing::Busy(busy) => Self::Busy(busy),
            Existing::Unknown(unknown) => Self::Unknown(unknown),
            Existing::Mismatch => Self::Mismatch,
            Existing::Expired(since) => Self::Expired(since),
        }
    }
}

/// Why a run could not do its work. Each case says whether the handler ran.
#[derive(Clone, Debug)]
pub enum RunError {
    /// The store failed before anything was executed.
    Store(StoreError),
    /// Too many operations are executing; nothing was claimed.
    Overloaded {
        /// How many may execute at once.
        limit: usize,
        /// How long the operation waited for a place.
        waited: Duration,
    },
    /// The handler ran, but what it said could not be stored yet. Where the store may come back it
    /// is tried further in the background; the claim is not released.
    NotStored {
        /// What the handler said.
        outcome: Box<Outcome>,
        /// What the store said.
        source: StoreError,
    },
    /// The runtime is shutting down; the handler may have been cut off.
    Stopped,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "nothing was executed: {error}"),
            Self::Overloaded { limit, waited } => write!(
                f,
                "nothing was executed: {limit} operations are executing, and no place became free \
                 within {waited:?}"
            ),
            Self::NotStored { source, .. } => {
                write!(f, "the operation was executed, but its outcome is not stored yet: {source}")
            }
            Self::Stopped => f.write_str("the runtime is shutting down"),
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(source) | Self::NotStored { source, .. } => Some(source),
            Self::Overloaded { .. } | Self::Stopped => None,
        }
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
