//! Running a saga: one operation under `resume`, whose checkpoint is the saga's log.

use justonce_core::engine::Begun;
use justonce_core::{Checkpoint, Engine, HandlerError, HeldClaim, Operation, Ran, UnknownReason};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::build::Saga;
use super::error::SagaError;
use super::execute::{Execution, Stopped};
use super::log::Log;
use super::outcome::{SagaEnd, SagaRan, StuckSaga, read};

impl<C> Saga<C>
where
    C: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// Runs a saga if it is new, goes on with it if its owner died or it is stuck, and replays its
    /// outcome if it has ended. One that is parked does not go on before a retry. The operation is
    /// one of [`Saga::operation`].
    ///
    /// The steps run inside this future. If it is dropped, the saga stays as it is saved, and the
    /// next call, or a [`Completer`](crate::Completer), goes on with it. **A step whose result was
    /// not saved then runs again, with the same key**: what it calls must recognise a repetition by
    /// the key.
    ///
    /// # Errors
    ///
    /// If the engine could not do its work, or the program does not fit what was saved.
    ///
    /// # Panics
    ///
    /// If a step does; the saga stays as it is saved.
    pub async fn run(
        &self,
        engine: &Engine,
        operation: &Operation,
    ) -> Result<SagaRan<C>, SagaError> {
        match engine.begin_or_wait(operation).await? {
            Begun::Claimed(claim) => self.execute(engine, operation, claim).await,
            Begun::Existing(existing) => saga_ran(existing.into()),
        }
    }

    /// The saga under a claim: the second half of [`Saga::run`].
    ///
    /// # Errors
    ///
    /// As [`Saga::run`].
    ///
    /// # Panics
    ///
    /// If a step does.
    pub async fn execute(
        &self,
        engine: &Engine,
        operation: &Operation,
        mut claim: HeldClaim,
    ) -> Result<SagaRan<C>, SagaError> {
        let log = match self.log_of(&claim) {
            Ok(log) => log,
            Err(error) => {
                // Nothing was executed, but it may be half done: it must neither be freed nor end.
                // If this fails, the lease lapses and says the same.
                let _ = claim.abandon(UnknownReason::Reported).await;
                return Err(error);
            }
        };
        if log.parked().is_some() {
            // Only a retry makes it go on. If this fails, the lease lapses and says the same.
            let _ = claim.abandon(UnknownReason::Reported).await;
            return Ok(SagaRan::Stuck(StuckSaga::of(&log)));
        }
        let handler = async |context| {
            let ended = match Execution::new(self, context, log) {
                Ok(execution) => execution.drive().await,
                Err(error) => Err(error.into()),
            };
            match ended {
                Ok(result) => (result, None),
                Err(stopped) => (Err(HandlerError::Unknown), Some(stopped)),
            }
        };
        let (ran, stopped) = engine.execute_with(operation, claim, handler).await;
        let ran = ran?;
        match stopped.flatten() {
            Some(Stopped::Stuck(stuck)) => Ok(SagaRan::Stuck(stuck)),
            Some(Stopped::Trouble(error)) => Err(error),
            Some(Stopped::Unsaved) | None => saga_ran(ran),
        }
    }

    /// The log that a claim starts with.
    fn log_of(&self, claim: &HeldClaim) -> Result<Log, SagaError> {
        let Some(point) = claim.checkpoint() else {
            return Err(SagaError::Unreadable("there is no log: use Saga::operation".into()));
        };
        Ok(self.read(point)?.retried())
    }

    /// What was saved, for the steps that are declared now.
    pub(crate) fn read(&self, point: &Checkpoint) -> Result<Log, SagaError> {
        Log::read(point)?.under(self.name(), &self.0.plan)
    }
}

fn saga_ran<C: DeserializeOwned>(ran: Ran) -> Result<SagaRan<C>, SagaError> {
    Ok(match ran {
        Ran::Executed(outcome) => SagaRan::Ended(SagaEnd::Done(read(&outcome)?)),
        Ran::Replayed(outcome) | Ran::Superseded(Some(outcome)) => {
            SagaRan::Replayed(SagaEnd::Done(read(&outcome)?))
        }
        Ran::Failed(outcome) => SagaRan::Ended(SagaEnd::RolledBack(read(&outcome)?)),
        Ran::FailedBefore(outcome) => SagaRan::Replayed(SagaEnd::RolledBack(read(&outcome)?)),
        Ran::Busy(busy) => SagaRan::Busy(busy),
        Ran::Unknown(unknown) => SagaRan::Unknown(unknown),
        Ran::Mismatch => SagaRan::Mismatch,
        Ran::Expired(since) => SagaRan::Expired(since),
        Ran::Abandoned(_) | Ran::Unclassified(_) | Ran::Released | Ran::Superseded(None) => {
            SagaRan::Unfinished
        }
    })
}
