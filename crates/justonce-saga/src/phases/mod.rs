//! Atomic phases: an operation as a sequence of named phases, each of which runs to its end once.

mod declared;
mod error;
mod journal;
mod phase_run;
mod within;

pub(crate) use declared::DEFAULT_TIMEOUT;
pub use declared::{MAX_NAME_BYTES, MAX_PHASES, Phases};
pub use error::{PhasesError, ShapeChanged};
pub use journal::Journal;
pub use phase_run::PhaseRun;
pub use within::Within;
