//! Why a guarded write could not be judged or kept.

use justonce_core::{PolicyError, RunError, ScopeError, StoreError};
use thiserror::Error;

/// Why a guarded write could not be judged or kept.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum GuardError {
    /// What is kept of the entity is not what a guard writes: the key is used for something else.
    /// Nothing was executed.
    #[error(
        "what is kept of the entity is not a guard's: {0}. Use a name of its own for each guard"
    )]
    Unreadable(String),
    /// The outcome is too large to be kept: return a short one, and store the rest elsewhere. The
    /// write took effect, and its retry will be executed again.
    #[error("the outcome cannot be kept: {0}")]
    Unsavable(String),
    /// The scope cannot be used.
    #[error("{0}")]
    Scope(#[source] ScopeError),
    /// The durations are not possible.
    #[error("{0}")]
    Policy(#[source] PolicyError),
    /// The engine could not do its work; it says whether the handler ran.
    #[error("{0}")]
    Run(#[from] RunError),
}

impl From<StoreError> for GuardError {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}
