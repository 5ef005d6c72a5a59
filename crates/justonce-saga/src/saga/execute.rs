//! Carries out what the rules say, under one claim.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use justonce_core::engine::{Context, SaveError};
use justonce_core::{HandlerError, Outcome, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::build::{Declared, Saga};
use super::call::Call;
use super::error::SagaError;
use super::log::{Log, LoggedStep, Mark};
use super::next::{End, Event, Next, next};
use super::outcome::{StuckSaga, done, rolled_back};
use super::step::{Save, StepError, Tries};
use crate::saved::{PARKED, STUCK};

/// Why a saga stopped before its end.
pub(super) enum Stopped {
    Stuck(StuckSaga),
    Trouble(SagaError),
    /// The log could not be saved, or the claim is lost: the next owner finds out.
    Unsaved,
}

impl From<SagaError> for Stopped {
    fn from(error: SagaError) -> Self {
        Self::Trouble(error)
    }
}

/// A saga under a claim.
pub(super) struct Execution<C> {
    saga: Arc<Declared<C>>,
    claim: Context,
    log: Log,
    context: C,
}

/// What one call of a step or compensation led to.
type CallEnd<C> = (usize, Event, Option<Save<C>>);

impl<C> Execution<C>
where
    C: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    pub(super) fn new(saga: &Saga<C>, claim: Context, log: Log) -> Result<Self, SagaError> {
        let context = log.context()?;
        Ok(Self { saga: Arc::clone(&saga.0), claim, log, context })
    }

    /// Goes on until the saga ends, or cannot.
    pub(super) async fn drive(mut self) -> Result<Result<Outcome, HandlerError>, Stopped> {
        loop {
            let running = match next(&self.log) {
                Next::Run(steps) => steps.into_iter().map(|step| self.run(step)).collect(),
                Next::Undo(steps) => steps.into_iter().map(|step| self.undo(step)).collect(),
                Next::End(End::Done) => return Ok(Ok(done(&self.context)?)),
                Next::End(End::RolledBack) => {
                    let outcome = rolled_back(&self.log, &self.context)?;
                    return Ok(Err(HandlerError::Permanent(outcome)));
                }
                Next::End(End::Stuck | End::Parked) => {
                    return Err(Stopped::Stuck(StuckSaga::of(&self.log)));
                }
            };
            self.together(running).await?;
        }
    }

    /// Waits for all of a group, and saves what became of each.
    async fn together(
        &mut self,
        mut running: FuturesUnordered<BoxFuture<'static, CallEnd<C>>>,
    ) -> Result<(), Stopped> {
        let ahead = !self.log.is_rolled_back();
        let mut unsavable = None;
        while let Some((step, event, save)) = running.next().await {
            if let Some(save) = save {
                unsavable = self.take_over(step, save).or(unsavable);
            }
            if self.log.step(step).is_some_and(|step| step.mark != Mark::Unsaved) {
                self.log.note(step, event);
            }
            // That the saga is rolled back must be saved before the first compensation; and not
            // before it is known what became of every step that was begun.
            if ahead && self.log.is_rolled_back() && !running.is_empty() {
                continue;
            }
            self.save(step).await?;
        }
        unsavable.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Takes the result of a step into the context. If the log could not be saved with it, the
    /// context stays as it is, and the saga is parked: the step would only run again and again.
    fn take_over(&mut self, step: usize, save: Save<C>) -> Option<SagaError> {
        let mut context = self.context.clone();
        save(&mut context);
        let mut log = self.log.clone();
        log.note(step, Event::Done);
        // The outcome has its own limit.
        let is_last = next(&log) == Next::End(End::Done);
        let mut saved = log.set_context(&context);
        if saved.is_ok() && !is_last {
            let before = self.log.data().map_or(0, |data| data.len());
            saved = log.fitting_data(before).map(|_| ());
        }
        match saved {
            Ok(()) => {
                self.context = context;
                None
            }
            Err(error) => {
                let name = self.log.step(step).map(|step| step.planned.name.as_str());
                let error = match error {
                    SagaError::Unsavable(why) => why,
                    other => other.to_string(),
                };
                let why = format!("with the result of {:?}, {error}", name.unwrap_or_default());
                self.log.note(step, Event::Unsaved(why.clone()));
                Some(SagaError::Unsavable(why))
            }
        }
    }

    /// Saves the log, unless the outcome follows at once.
    async fn save(&mut self, step: usize) -> Result<(), Stopped> {
        let name = match next(&self.log) {
            Next::End(End::Done | End::RolledBack) => return Ok(()),
            Next::End(End::Stuck) => STUCK.to_owned(),
            Next::End(End::Parked) => PARKED.to_owned(),
            Next::Run(_) | Next::Undo(_) => self.point_name(step),
        };
        let failed = |step: &LoggedStep| {
            matches!(step.mark, Mark::StuckAhead | Mark::StuckBack | Mark::Unsaved)
        };
        if self.log.step(step).is_some_and(|step| !failed(step)) {
            self.log.set_progressed(self.claim.attempt());
        }
        self.log.set_context(&self.context)?;
        match self.claim.save(&name, self.log.data()?).await {
            Ok(()) => Ok(()),
            Err(SaveError::Refused(error)) => Err(SagaError::Unsavable(error.to_string()).into()),
            Err(SaveError::Lost(_) | SaveError::Store(_)) => Err(Stopped::Unsaved),
        }
    }

    /// What became of the step that was last, for the timeline.
    fn point_name(&self, step: usize) -> String {
        let step = self.log.step(step);
        let name = step.map(|step| step.planned.name.as_str()).unwrap_or_default();
        match step.map(|step| step.mark) {
            Some(Mark::Done) | None => name.to_owned(),
            Some(mark) => format!("{name} {mark:?}"),
        }
    }

    fn call(&self, step: usize, what: &str) -> Call<C> {
        let name = self.saga.steps.get(step).map(|step| step.name.as_str()).unwrap_or_default();
        Call {
            key: self.claim.child_key(&format!("{what}/{name}")),
            step_key: self.claim.child_key(&format!("step/{name}")),
            fence: self.claim.fence(),
            attempt: 0,
            context: Arc::new(self.context.clone()),
        }
    }

    fn run(&self, step: usize) -> BoxFuture<'static, CallEnd<C>> {
        let (saga, call) = (Arc::clone(&self.saga), self.call(step, "step"));
        async move {
            let Some(declared) = saga.steps.get(step) else {
                return (step, Event::Refused("there is no such step".into()), None);
            };
            let limit = declared.timeout.unwrap_or(saga.step_timeout);
            match retried(&saga, declared.tries, limit, call, &*declared.run).await {
                Ok(save) => (step, Event::Done, Some(save)),
                Err(StepError::Permanent(why)) => (step, Event::Refused(why), None),
                Err(StepError::Passing(why)) => (step, Event::GivenUp(why), None),
            }
        }
        .boxed()
    }

    fn undo(&self, step: usize) -> BoxFuture<'static, CallEnd<C>> {
        let (saga, call) = (Arc::clone(&self.saga), self.call(step, "undo"));
        async move {
            let Some(declared) = saga.steps.get(step) else {
                return (step, Event::NotUndone("there is no such step".into()), None);
            };
            let limit = declared.timeout.unwrap_or(saga.step_timeout);
            let undo = |call| declared.call_undo(call);
            match retried(&saga, declared.undo_tries, limit, call, undo).await {
                Ok(()) => (step, Event::Undone, None),
                Err(StepError::Permanent(why) | StepError::Passing(why)) => {
                    (step, Event::NotUndone(why), None)
                }
            }
        }
        .boxed()
    }
}

/// Tries until it succeeds, is refused, or was tried often enough. A call that does not end in time
/// may have taken effect.
async fn retried<C, T>(
    saga: &Declared<C>,
    tries: Tries,
    limit: Duration,
    mut call: Call<C>,
    what: impl Fn(Call<C>) -> BoxFuture<'static, Result<T, StepError>>,
) -> Result<T, StepError>
where
    C: Clone,
{
    loop {
        call.attempt += 1;
        let no_answer = |_| Err(StepError::Passing(format!("no answer within {limit:?}")));
        match timeout(limit, what(call.clone())).await.unwrap_or_else(no_answer) {
            Err(StepError::Passing(_)) if call.attempt < tries.most => {}
            result => return result,
        }
        let jitter = saga.entropy.next_u32();
        let until = tries.back_off.until(Timestamp::ZERO, call.attempt, jitter);
        tokio::time::sleep(until.since(Timestamp::ZERO)).await;
    }
}
