//! How a saga ends, and what is stored of it.

use justonce_core::{Busy, Outcome, Timestamp, UnknownSince};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::SagaError;
use super::log::{Log, LoggedStep, Mark};

/// The header that marks an outcome as that of a saga.
pub(super) const MARK: &str = "justonce-saga";
/// The version in which outcomes are written.
pub(super) const MARK_VERSION: &[u8] = b"1";

/// How a run of a saga ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SagaRan<C> {
    /// It ended here and now.
    Ended(SagaEnd<C>),
    /// It ended before; this is the stored outcome.
    Replayed(SagaEnd<C>),
    /// Something keeps failing that cannot be given up. Asking again tries again, unless it is
    /// parked.
    Stuck(StuckSaga),
    /// Another owner is executing it.
    Busy(Busy),
    /// It was given up here, for others or for the next call to go on with: its time was over, the
    /// store could not be reached, or another owner took over.
    Unfinished,
    /// It cannot go on before a resolution.
    Unknown(UnknownSince),
    /// The key was used with another context.
    Mismatch,
    /// It is over since this moment, and late arrivals are refused.
    Expired(Timestamp),
}

/// The final outcome of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SagaEnd<C> {
    /// All steps are done; this is the context after them.
    Done(C),
    /// All that was done is undone.
    RolledBack(RolledBack<C>),
}

/// Why a saga was rolled back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack<C> {
    /// The step that was refused or given up.
    pub step: String,
    /// What it said.
    pub why: String,
    /// The context as the steps that were done had left it.
    pub context: C,
}

/// What keeps a saga from ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckSaga {
    /// The steps that keep failing, or whose compensations do, with their errors.
    pub steps: Vec<LoggedStep>,
    /// Why it is parked: it is not driven on before a retry, with
    /// [`retry`](crate::retry). Nothing while it is tried again.
    pub parked: Option<String>,
}

impl StuckSaga {
    pub(crate) fn of(log: &Log) -> Self {
        let is_stuck = |step: &&LoggedStep| {
            matches!(step.mark, Mark::StuckAhead | Mark::StuckBack | Mark::Unsaved)
        };
        let steps = log.steps().iter().filter(is_stuck).cloned().collect();
        Self { steps, parked: log.parked().map(str::to_owned) }
    }
}

/// The outcome of a saga whose steps are all done: its context.
pub(super) fn done<C: Serialize>(context: &C) -> Result<Outcome, SagaError> {
    written(context)
}

/// The outcome of a saga that is rolled back.
pub(super) fn rolled_back<C: Serialize>(log: &Log, context: &C) -> Result<Outcome, SagaError> {
    let fallen = log.fallen();
    let step = fallen.map(|step| step.planned.name.clone()).unwrap_or_default();
    let why = fallen.and_then(|step| step.why.clone()).unwrap_or_default();
    written(&RolledBack { step, why, context })
}

fn written<T: Serialize>(value: &T) -> Result<Outcome, SagaError> {
    let bytes = serde_json::to_vec(value).map_err(|e| SagaError::Unsavable(e.to_string()))?;
    let outcome = Outcome::builder().header(MARK, MARK_VERSION).body(bytes).build();
    outcome.map_err(|error| SagaError::Unsavable(error.to_string()))
}

/// Reads a stored outcome back.
pub(super) fn read<T: DeserializeOwned>(outcome: &Outcome) -> Result<T, SagaError> {
    let body =
        outcome.body().ok_or_else(|| SagaError::Unreadable("no outcome is stored".into()))?;
    serde_json::from_slice(body).map_err(|error| SagaError::Unreadable(error.to_string()))
}
