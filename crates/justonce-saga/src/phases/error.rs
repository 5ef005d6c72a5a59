//! Why phases could not go on.

use std::error::Error;
use std::fmt;

use justonce_core::RunError;

use super::declared::{MAX_NAME_BYTES, MAX_PHASES};

/// Why phases could not go on. Except for [`PhasesError::Run`], it is the program that must change:
/// the operation is given up as it is, and whoever begins it next goes on from the same point.
#[derive(Clone, Debug)]
pub enum PhasesError {
    /// The names cannot be used: none, too many, empty, too long, or one of them twice.
    Names(Vec<String>),
    /// The operation is not under `resume`, so that nothing would be handed over; or a failure
    /// would give its key back and forget what is done.
    Policy,
    /// The phases are not those under which the operation was begun. Nothing was executed.
    Shape(Box<ShapeChanged>),
    /// A phase was entered out of its order. It was not executed.
    Order {
        /// The phase that was entered.
        entered: String,
        /// The phase that was to come; nothing if all are over.
        expected: Option<String>,
    },
    /// What was saved cannot be read as what the program expects.
    Unreadable {
        /// Whose result it is; nothing for the input and for the whole.
        phase: Option<String>,
        /// What is wrong with it.
        why: String,
    },
    /// A result cannot be saved: it cannot be written, or it makes the recovery point too large.
    Unsavable {
        /// Whose result it is.
        phase: String,
        /// What is wrong with it.
        why: String,
    },
    /// It failed too often, or what is done of it cannot be saved: nobody goes on with it before
    /// somebody retries it, with [`retry`](crate::retry). Nothing was executed.
    Parked(String),
    /// The engine could not do its work.
    Run(RunError),
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

impl fmt::Display for PhasesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) => write!(
                f,
                "these cannot be the names of phases: {names:?}. Use 1 to {MAX_PHASES} different \
                 names of 1 to {MAX_NAME_BYTES} bytes"
            ),
            Self::Policy => f.write_str(
                "phases need a policy with OnLapsed::Resume, and none with OnFailure::Release: \
                 what is done must be handed over, and not be forgotten",
            ),
            Self::Shape(changed) => changed.fmt(f),
            Self::Order { entered, expected: Some(expected) } => {
                write!(f, "the phase {entered:?} was entered where {expected:?} is to come")
            }
            Self::Order { entered, expected: None } => {
                write!(f, "the phase {entered:?} was entered after the last one")
            }
            Self::Unreadable { phase: Some(phase), why } => {
                write!(f, "the saved result of the phase {phase:?} cannot be read: {why}")
            }
            Self::Unreadable { phase: None, why } => {
                write!(f, "what was saved of the phases cannot be read: {why}")
            }
            Self::Unsavable { phase, why } => {
                write!(f, "the result of the phase {phase:?} cannot be saved: {why}")
            }
            Self::Parked(why) => {
                write!(f, "the operation is parked until somebody retries it: {why}")
            }
            Self::Run(error) => error.fmt(f),
        }
    }
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

impl Error for PhasesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Run(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RunError> for PhasesError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}
