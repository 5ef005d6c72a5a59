//! Why a saga could not be declared, or could not go on.

use std::error::Error;
use std::fmt;

use justonce_core::{PolicyError, RunError, ScopeError};

use super::log::PlannedStep;
use crate::phases::{MAX_NAME_BYTES, MAX_PHASES};

/// Why a saga could not go on. Except for [`SagaError::Run`], it is the program that must change:
/// the saga is given up as it is, and whoever goes on with it starts from the same log.
#[derive(Clone, Debug)]
pub enum SagaError {
    /// The steps are not those under which the saga was begun. Nothing was executed.
    Changed(Box<PlanChanged>),
    /// What was saved cannot be read as what the program expects.
    Unreadable(String),
    /// The log cannot be saved: the context cannot be written, or it is too large.
    Unsavable(String),
    /// The scope cannot be used.
    Scope(ScopeError),
    /// The engine could not do its work.
    Run(RunError),
}

/// The steps of the release that began a saga, and those of the one that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChanged {
    /// The saga and its steps as they were saved.
    pub saved: (String, Vec<PlannedStep>),
    /// The saga and its steps as they are declared now.
    pub declared: (String, Vec<PlannedStep>),
}

impl fmt::Display for SagaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(changed) => changed.fmt(f),
            Self::Unreadable(why) => write!(f, "the log of the saga cannot be read: {why}"),
            Self::Unsavable(why) => write!(f, "the log of the saga cannot be saved: {why}"),
            Self::Scope(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for PlanChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the steps have changed while the saga was under way: it was begun as {}, and is \
             declared as {} now. Nothing was executed: finish it with the release that began it, \
             or keep the steps that have begun",
            Shown(&self.saved),
            Shown(&self.declared)
        )
    }
}

/// Steps of one group are joined by a plus, steps without a compensation end with an exclamation
/// mark.
struct Shown<'a>(&'a (String, Vec<PlannedStep>));

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (saga, steps) = self.0;
        write!(f, "{saga:?} (")?;
        let mut before = None;
        for step in steps {
            match before {
                None => {}
                Some(group) if group == step.group => f.write_str(" + ")?,
                Some(_) => f.write_str(", ")?,
            }
            before = Some(step.group);
            write!(f, "{}{}", step.name, if step.undo { "" } else { "!" })?;
        }
        f.write_str(")")
    }
}

impl Error for SagaError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Run(error) => Some(error),
            Self::Scope(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RunError> for SagaError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// Why a saga cannot be declared so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidSaga {
    /// There is no step, or there are too many.
    Steps(usize),
    /// A name is empty, too long, or there twice.
    Name(String),
    /// A step that runs beside others has no compensation.
    NoCompensation(String),
    /// The first step runs beside none.
    Beside(String),
    /// The promise is not possible.
    Policy(PolicyError),
}

impl fmt::Display for InvalidSaga {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(count) => write!(f, "a saga has 1 to {MAX_PHASES} steps, not {count}"),
            Self::Name(name) => write!(
                f,
                "{name:?} cannot be a name: use 1 to {MAX_NAME_BYTES} bytes, and each name once"
            ),
            Self::NoCompensation(name) => write!(
                f,
                "the step {name:?} runs beside others and has no compensation: if one of the \
                 others is refused, it could not be undone"
            ),
            Self::Beside(name) => write!(f, "the step {name:?} is the first: beside which?"),
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl Error for InvalidSaga {}
