//! A phase whose effects and checkpoint are committed together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use justonce_core::engine::Context;
use justonce_core::{Checkpoint, HandlerError, Key};
use serde::Serialize;

use super::declared::StopCause;
use super::journal::{Journal, unsavable};

/// What a phase needs to save its own checkpoint, in one transaction with its effects.
///
/// The library knows of no store: the phase makes its point here and hands it to the transaction,
/// for example to `PostgresStore::checkpoint_with`.
pub struct Within {
    context: Context,
    journal: Journal,
    name: String,
    made: Made,
    stopped: StopCause,
}

/// Whether the phase made its checkpoint. One that did not has it saved afterwards.
#[derive(Clone, Debug, Default)]
pub(super) struct Made(Arc<AtomicBool>);

impl Made {
    pub(super) fn is_made(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Within {
    pub(super) fn new(
        context: &Context,
        journal: &Journal,
        name: &str,
        stopped: &StopCause,
    ) -> Self {
        Self {
            context: context.clone(),
            journal: journal.clone(),
            name: name.to_owned(),
            made: Made::default(),
            stopped: stopped.clone(),
        }
    }

    pub(super) fn made(&self) -> Made {
        self.made.clone()
    }

    /// What a handler knows of its operation: also the fence, for the transaction.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// The key of this phase, the same on every attempt.
    #[must_use]
    pub fn key(&self) -> Key {
        self.context.child_key(&self.name)
    }

    /// The checkpoint after this phase with this result. Once it is made, the phase must
    /// commit it before it ends well; and it must return the same result.
    ///
    /// # Errors
    ///
    /// If the result cannot be saved. Roll back, and hand the error on with `?`.
    pub fn point<T: Serialize>(&self, result: &T) -> Result<Checkpoint, HandlerError> {
        let point = self.journal.with(result, self.context.attempt()).and_then(|journal| {
            let before = self.journal.data()?.len();
            let made = self.context.point(journal.name(), journal.fitting_data(before)?);
            made.map_err(|error| unsavable(&self.name, error))
        });
        match point {
            Ok(point) => {
                self.made.0.store(true, Ordering::Release);
                Ok(point)
            }
            Err(error) => {
                self.stopped.set(error);
                Err(HandlerError::Unknown)
            }
        }
    }
}

impl fmt::Debug for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").field("phase", &self.name).finish_non_exhaustive()
    }
}
