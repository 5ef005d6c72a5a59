//! Why a saga could not be declared, or could not go on.

use std::fmt;

use justonce_core::{PolicyError, RunError, ScopeError};
use thiserror::Error;

use super::log::PlannedStep;
use crate::phases::{MAX_NAME_BYTES, MAX_PHASES};

/// Why a saga could not go on. Except for [`SagaError::Run`], it is the program that must change:
/// the saga is given up as it is, and the next owner starts from the same log.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SagaError {
    /// The steps are not those under which the saga was begun. Nothing was executed.
    #[error("{0}")]
    Changed(Box<PlanChanged>),
    /// What was saved cannot be read as what the program expects.
    #[error("the log of the saga cannot be read: {0}")]
    Unreadable(String),
    /// The log cannot be saved: the context cannot be written, or it is too large.
    #[error("the log of the saga cannot be saved: {0}")]
    Unsavable(String),
    /// The scope cannot be used.
    #[error("{0}")]
    Scope(#[source] ScopeError),
    /// The engine could not do its work.
    #[error("{0}")]
    Run(#[from] RunError),
}

/// The steps of the release that began a saga, and those of the one that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChanged {
    /// The saga and its steps as they were saved.
    pub saved: (String, Vec<PlannedStep>),
    /// The saga and its steps as they are declared now.
    pub declared: (String, Vec<PlannedStep>),
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

/// Why a saga cannot be declared so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidSaga {
    /// There is no step, or there are too many.
    #[error("a saga has 1 to {MAX_PHASES} steps, not {0}")]
    Steps(usize),
    /// A name is empty, too long, or there twice.
    #[error("{0:?} cannot be a name: use 1 to {MAX_NAME_BYTES} bytes, and each name once")]
    Name(String),
    /// A step that runs beside others has no compensation.
    #[error(
        "the step {0:?} runs beside others and has no compensation: if one of the others is \
         refused, it could not be undone"
    )]
    NoCompensation(String),
    /// The first step runs beside none.
    #[error("the step {0:?} is the first: beside which?")]
    Beside(String),
    /// The policy is not possible.
    #[error("{0}")]
    Policy(PolicyError),
}
