//! What a run can end with.

use std::time::Duration;

use thiserror::Error;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::outcome::Outcome;
use crate::protocol::{Busy, Existing, UnknownReason, UnknownSince};

/// How a run ended. Every case but the first two says why there is no outcome of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran<T = Outcome> {
    /// The handler ran here and now, and its outcome is stored.
    Executed(T),
    /// The operation was done before; this is the stored outcome.
    Replayed(T),
    /// The handler failed here and now; what becomes of the operation is the policy's business.
    Failed(Outcome),
    /// The operation failed for good before; this is the stored failure.
    FailedBefore(Outcome),
    /// The handler returned that nothing happened; the key is free.
    Released,
    /// Another owner executes it, or its back-off is running.
    Busy(Busy),
    /// It is not known whether it took effect.
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
    Superseded(Option<T>),
    /// The key was used for something else.
    Mismatch,
    /// The operation is over since this moment, and late arrivals are refused.
    Expired(Timestamp),
}

impl<T> Ran<T> {
    /// The outcome of the operation, wherever it came from.
    #[must_use]
    pub const fn outcome(&self) -> Option<&T> {
        match self {
            Self::Executed(outcome) | Self::Replayed(outcome) | Self::Superseded(Some(outcome)) => {
                Some(outcome)
            }
            _ => None,
        }
    }

    /// The same with an outcome of another type.
    ///
    /// # Errors
    ///
    /// If the outcome cannot be converted.
    pub(super) fn try_map<U, E>(
        self,
        convert: impl FnOnce(T) -> Result<U, E>,
    ) -> Result<Ran<U>, E> {
        Ok(match self {
            Self::Executed(outcome) => Ran::Executed(convert(outcome)?),
            Self::Replayed(outcome) => Ran::Replayed(convert(outcome)?),
            Self::Superseded(outcome) => Ran::Superseded(outcome.map(convert).transpose()?),
            Self::Failed(failure) => Ran::Failed(failure),
            Self::FailedBefore(failure) => Ran::FailedBefore(failure),
            Self::Released => Ran::Released,
            Self::Busy(busy) => Ran::Busy(busy),
            Self::Unknown(since) => Ran::Unknown(since),
            Self::Abandoned(reason) => Ran::Abandoned(reason),
            Self::Unclassified(error) => Ran::Unclassified(error),
            Self::Mismatch => Ran::Mismatch,
            Self::Expired(since) => Ran::Expired(since),
        })
    }
}

impl From<Existing> for Ran {
    /// What a caller gets for an operation that it did not execute.
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
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The store failed before anything was executed.
    #[error("nothing was executed: {0}")]
    Store(#[from] StoreError),
    /// Too many operations are executing; nothing was claimed.
    #[error(
        "nothing was executed: {limit} operations are executing, and no place became free within \
         {waited:?}"
    )]
    Overloaded {
        /// How many may execute at once.
        limit: usize,
        /// How long the operation waited for a place.
        waited: Duration,
    },
    /// The handler ran, but its result could not be stored yet. Where the store may come back it is
    /// tried further in the background; the claim is not released.
    #[error("the operation was executed, but its outcome is not stored yet: {source}")]
    NotStored {
        /// The handler's result.
        outcome: Box<Outcome>,
        /// The store's error.
        source: StoreError,
    },
    /// The runtime is shutting down; the handler may have been cut off.
    #[error("the runtime is shutting down")]
    Stopped,
}
