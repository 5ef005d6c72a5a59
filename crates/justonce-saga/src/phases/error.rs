//! Why phases could not go on.

use std::fmt;

use justonce_core::RunError;
use thiserror::Error;

use super::declared::{MAX_NAME_BYTES, MAX_PHASES};

/// Why phases could not go on. Except for [`PhasesError::Run`], it is the program that must change:
/// the operation is given up as it is, and the next begin goes on from the same point.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PhasesError {
    /// The names cannot be used: none, too many, empty, too long, or one of them twice.
    #[error(
        "these cannot be the names of phases: {0:?}. Use 1 to {MAX_PHASES} different names of 1 to \
         {MAX_NAME_BYTES} bytes"
    )]
    Names(Vec<String>),
    /// The operation is not under `resume`, so that nothing would be handed over; or a failure
    /// would give its key back and forget what is done.
    #[error(
        "phases need a policy with OnLapsed::Resume, and none with OnFailure::Release: what is \
         done must be handed over, and not be forgotten"
    )]
    Policy,
    /// The phases are not those under which the operation was begun. Nothing was executed.
    #[error("{0}")]
    Shape(Box<ShapeChanged>),
    /// A phase was entered out of its order. It was not executed.
    #[error("the phase {entered:?} was entered {}", where_expected(expected.as_deref()))]
    Order {
        /// The phase that was entered.
        entered: String,
        /// The phase that was to come; nothing if all are over.
        expected: Option<String>,
    },
    /// What was saved cannot be read as what the program expects.
    #[error("{} cannot be read: {why}", saved_part(phase.as_deref()))]
    Unreadable {
        /// Whose result it is; nothing for the input and for the whole.
        phase: Option<String>,
        /// What is wrong with it.
        why: String,
    },
    /// A result cannot be saved: it cannot be written, or it makes the checkpoint too large.
    #[error("the result of the phase {phase:?} cannot be saved: {why}")]
    Unsavable {
        /// Whose result it is.
        phase: String,
        /// What is wrong with it.
        why: String,
    },
    /// It failed too often, or what is done of it cannot be saved: it does not go on before a
    /// retry, with [`retry`](crate::retry). Nothing was executed.
    #[error("the operation is parked until it is retried: {0}")]
    Parked(String),
    /// The engine could not do its work.
    #[error("{0}")]
    Run(#[from] RunError),
}

/// The phases of the release that began an operation, and those of the one that resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeChanged {
    /// The phases as they were saved.
    pub saved: Vec<String>,
    /// How many of them are done. The next one may have been begun.
    pub done: usize,
    /// The phases as they are declared now.
    pub declared: Vec<String>,
}

impl fmt::Display for ShapeChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the phases have changed while the operation was under way: it was begun with {:?}, \
             of which {} are done, and {:?} are declared now. Nothing was executed: finish it with \
             the release that began it, or keep the names and order of what has begun",
            self.saved, self.done, self.declared
        )
    }
}

fn where_expected(expected: Option<&str>) -> String {
    expected.map_or_else(
        || "after the last one".to_owned(),
        |expected| format!("where {expected:?} is to come"),
    )
}

fn saved_part(phase: Option<&str>) -> String {
    phase.map_or_else(
        || "what was saved of the phases".to_owned(),
        |phase| format!("the saved result of the phase {phase:?}"),
    )
}
