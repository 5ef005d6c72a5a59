//! Sagas: steps with compensations, which end entirely done or entirely undone.

mod build;
mod call;
mod error;
mod execute;
mod inspect;
mod log;
mod next;
mod outcome;
mod park;
mod run;
mod step;

pub use build::{Saga, SagaBuilder};
pub use call::Call;
pub use error::{InvalidSaga, PlanChanged, SagaError};
pub use inspect::{Retried, SagaState, SeenSaga, retry};
pub use log::{Log, LoggedStep, Mark, PlannedStep};
pub use next::{End, Event, Next, next};
pub use outcome::{RolledBack, SagaEnd, SagaRan, StuckSaga};
pub(crate) use park::{Taken, park_phases, park_saga, take};
pub use step::{SagaStep, StepError, Tries, Unsaved};
