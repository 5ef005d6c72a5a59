//! The log of a saga: all that is saved of it. Pure.

use bytes::Bytes;
use justonce_core::{Checkpoint, MAX_CHECKPOINT_BYTES};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::{PlanChanged, SagaError};
use crate::saved::{cut, cut_at, is_zero, most_after};

/// The version in which logs are written.
const VERSION: u32 = 1;
/// How much is kept of each reason where there is no room for all, in bytes.
const SHORTER_WHYS: [usize; 3] = [256, 32, 0];
/// How much is kept of the reason of parking at least, in bytes: it says that it is parked.
const MIN_PARKED_BYTES: usize = 32;

/// A step as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlannedStep {
    /// Its name.
    pub name: String,
    /// Steps of one group run beside each other; a group begins when the one before is done.
    pub group: usize,
    /// Whether it has a compensation.
    pub undo: bool,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It was not executed, or is being executed for all the log knows.
    Waiting,
    /// It took effect.
    Done,
    /// It will never take effect: it was refused.
    Refused,
    /// It failed so often that it was given up; it may have taken effect.
    Doubted,
    /// Its compensation took effect.
    Undone,
    /// It has no compensation and keeps failing: the saga is stuck.
    StuckAhead,
    /// Its compensation keeps failing: the saga is stuck.
    StuckBack,
    /// It took effect, and its result could not be saved: the saga is parked.
    Unsaved,
}

/// A step in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoggedStep {
    /// The step as it was declared.
    #[serde(flatten)]
    pub planned: PlannedStep,
    /// What became of it.
    pub mark: Mark,
    /// The error when it was refused, given up, or got stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The log of a saga, as JSON the data of the claim's one checkpoint. It holds the whole: the
/// plan of the release that wrote it, the context, and what became of each step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Log {
    version: u32,
    saga: String,
    /// The step because of which the saga is rolled back.
    fallen: Option<usize>,
    steps: Vec<LoggedStep>,
    context: Box<RawValue>,
    /// The attempt that brought the saga on last.
    #[serde(default, skip_serializing_if = "is_zero")]
    progressed: u32,
    /// Why the saga is not driven on before a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parked: Option<String>,
}

impl Log {
    /// The log of a saga before its first step.
    ///
    /// # Errors
    ///
    /// If the context cannot be written as JSON.
    pub fn new<C: Serialize>(
        saga: &str,
        plan: &[PlannedStep],
        context: &C,
    ) -> Result<Self, SagaError> {
        let step = |planned: &PlannedStep| LoggedStep {
            planned: planned.clone(),
            mark: Mark::Waiting,
            why: None,
        };
        Ok(Self {
            version: VERSION,
            saga: saga.to_owned(),
            fallen: None,
            steps: plan.iter().map(step).collect(),
            context: written(context)?,
            progressed: 0,
            parked: None,
        })
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    ///
    /// If it is not the log of a saga.
    pub fn read(point: &Checkpoint) -> Result<Self, SagaError> {
        let log: Self = serde_json::from_slice(point.data())
            .map_err(|error| SagaError::Unreadable(error.to_string()))?;
        if log.version != VERSION {
            let why = format!("it has version {}, and {VERSION} is known", log.version);
            return Err(SagaError::Unreadable(why));
        }
        Ok(log)
    }

    /// The same under the plan that is declared now. The groups that are done, and the one that
    /// may have been begun, must be the same. What comes after them may have changed.
    ///
    /// # Errors
    ///
    /// If the plan has changed where the saga has been.
    pub fn under(mut self, saga: &str, plan: &[PlannedStep]) -> Result<Self, SagaError> {
        let here = self.current_group();
        let begun = |step: &&PlannedStep| step.group <= here;
        let saved = self.steps.iter().map(|step| &step.planned);
        if self.saga != saga || !saved.filter(begun).eq(plan.iter().filter(begun)) {
            return Err(SagaError::Changed(Box::new(PlanChanged {
                saved: (self.saga, self.steps.into_iter().map(|step| step.planned).collect()),
                declared: (saga.to_owned(), plan.to_vec()),
            })));
        }
        self.steps.retain(|step| step.planned.group <= here);
        for planned in plan.iter().filter(|step| step.group > here) {
            self.steps.push(LoggedStep {
                planned: planned.clone(),
                mark: Mark::Waiting,
                why: None,
            });
        }
        Ok(self)
    }

    /// The group that may have been begun: the first that is not done, or the last.
    fn current_group(&self) -> usize {
        let waits = |step: &&LoggedStep| step.mark != Mark::Done;
        let first = self.steps.iter().filter(waits).map(|step| step.planned.group).min();
        let touched = self.steps.iter().filter(|step| step.mark != Mark::Waiting);
        let last = touched.map(|step| step.planned.group).max();
        first.max(last).unwrap_or_default()
    }

    /// The name of the saga.
    #[must_use]
    pub fn saga(&self) -> &str {
        &self.saga
    }

    /// The steps.
    #[must_use]
    pub fn steps(&self) -> &[LoggedStep] {
        &self.steps
    }

    /// A step by its number.
    #[must_use]
    pub fn step(&self, number: usize) -> Option<&LoggedStep> {
        self.steps.get(number)
    }

    /// The step because of which the saga is rolled back; nothing while it goes ahead.
    #[must_use]
    pub fn fallen(&self) -> Option<&LoggedStep> {
        self.fallen.and_then(|step| self.steps.get(step))
    }

    /// Whether the saga is rolled back.
    #[must_use]
    pub const fn is_rolled_back(&self) -> bool {
        self.fallen.is_some()
    }

    /// Rolls the saga back because of this step, unless another one was first.
    pub(super) fn fall(&mut self, step: usize) {
        self.fallen.get_or_insert(step);
    }

    pub(super) fn mark(&mut self, number: usize, mark: Mark, why: Option<String>) {
        if let Some(step) = self.steps.get_mut(number) {
            step.mark = mark;
            if let Some(why) = why {
                step.why = Some(cut(why));
            }
        }
    }

    /// The attempt that brought the saga on last: a step or compensation ended, or an operator
    /// retried it. Each claim since then was a drive that failed.
    #[must_use]
    pub const fn progressed(&self) -> u32 {
        self.progressed
    }

    /// This attempt brings the saga on.
    pub(super) const fn set_progressed(&mut self, attempt: u32) {
        self.progressed = attempt;
    }

    /// Why the saga is not driven on before a retry; nothing while it may be driven.
    #[must_use]
    pub fn parked(&self) -> Option<&str> {
        self.parked.as_deref()
    }

    pub(super) fn set_parked(&mut self, why: Option<String>) {
        self.parked = why.map(cut);
    }

    /// The context.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn context<C: DeserializeOwned>(&self) -> Result<C, SagaError> {
        serde_json::from_str(self.context.get())
            .map_err(|error| SagaError::Unreadable(format!("context: {error}")))
    }

    /// Takes the context over.
    pub(super) fn set_context<C: Serialize>(&mut self, context: &C) -> Result<(), SagaError> {
        self.context = written(context)?;
        Ok(())
    }

    /// The data of the checkpoint.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn data(&self) -> Result<Bytes, SagaError> {
        let data = self.encoded()?;
        if data.len() <= MAX_CHECKPOINT_BYTES {
            return Ok(data);
        }
        // Reasons are for people: they make room for what must be saved.
        let mut log = self.clone();
        for most in SHORTER_WHYS {
            for step in &mut log.steps {
                step.why = step.why.take().map(|why| cut_at(why, most));
            }
            log.parked = log.parked.take().map(|why| cut_at(why, most.max(MIN_PARKED_BYTES)));
            let shorter = log.encoded()?;
            if shorter.len() <= MAX_CHECKPOINT_BYTES {
                return Ok(shorter);
            }
        }
        Ok(data)
    }

    fn encoded(&self) -> Result<Bytes, SagaError> {
        let bytes = serde_json::to_vec(self).map_err(|e| SagaError::Unsavable(e.to_string()))?;
        Ok(bytes.into())
    }

    /// The data of the checkpoint, if there is room left for all that may become of the saga
    /// that had so many bytes before.
    pub(super) fn fitting_data(&self, before: usize) -> Result<Bytes, SagaError> {
        let (data, most) = (self.data()?, most_after(before));
        if data.len() <= most {
            return Ok(data);
        }
        Err(SagaError::Unsavable(format!(
            "it has {} bytes, at most {most} are kept: store large data elsewhere and \
             keep its address in the context",
            data.len()
        )))
    }
}

fn written<C: Serialize>(context: &C) -> Result<Box<RawValue>, SagaError> {
    serde_json::value::to_raw_value(context).map_err(|e| SagaError::Unsavable(e.to_string()))
}
