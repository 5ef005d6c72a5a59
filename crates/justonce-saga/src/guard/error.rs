//! Why a guarded write could not be judged or kept.

use std::error::Error;
use std::fmt;

use justonce_core::{PolicyError, RunError, ScopeError, StoreError};

/// Why a guarded write could not be judged or kept.
#[derive(Clone, Debug)]
pub enum GuardError {
    /// What is kept of the entity is not what a guard writes: the key is used for something else.
    /// Nothing was executed.
    Unreadable(String),
    /// The outcome is too large to be kept: return a short one, and store the rest elsewhere. The
    /// write took effect, and its retry will be executed again.
    Unsavable(String),
    /// The scope cannot be used.
    Scope(ScopeError),
    /// The durations are not possible.
    Policy(PolicyError),
    /// The engine could not do its work; it says whether the handler ran.
    Run(RunError),
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(
                f,
                "what is kept of the entity is not a guard's: {why}. Use a name of its own for \
                 each guard"
            ),
            Self::Unsavable(why) => write!(f, "the outcome cannot be kept: {why}"),
            Self::Scope(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl Error for GuardError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Scope(error) => Some(error),
            Self::Policy(error) => Some(error),
            Self::Run(error) => Some(error),
            Self::Unreadable(_) | Self::Unsavable(_) => None,
        }
    }
}

impl From<RunError> for GuardError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<StoreError> for GuardError {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}
