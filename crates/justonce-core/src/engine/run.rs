//! Run: begin, execute, complete, or replay.

use std::panic::resume_unwind;
use std::pin::pin;

use super::begin::Begun;
use super::builder::Engine;
use super::context::Context;
use super::drive::{Ended, Handling, drive};
use super::handler_error::HandlerError;
use super::held::HeldClaim;
use super::ran::{Ran, RunError};
use super::wait::{Patience, Waited};
use crate::claim::Fence;
use crate::operation::{OnConcurrent, Operation};
use crate::outcome::Outcome;
use crate::record::UnknownReason;
use crate::step::{Abandonment, Action, Busy, Existing, FailureKind};
use crate::timeline::Why;

impl Engine {
    /// Runs the handler if the operation is new, and replays its outcome if it is not.
    ///
    /// The handler runs inside this future. If the future is dropped, so is the handler, and the
    /// operation is treated as one that may have happened; use [`Engine::run_detached`] where
    /// callers come and go.
    ///
    /// # Errors
    ///
    /// If nothing could be executed, or the outcome not be stored; the error says which.
    ///
    /// # Panics
    ///
    /// If the handler does, after the operation has been abandoned.
    pub async fn run<H, F>(&self, operation: &Operation, handler: H) -> Result<Ran, RunError>
    where
        H: FnOnce(Context) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        match self.begin_or_wait(operation).await? {
            Begun::Claimed(claim) => self.execute(operation, claim, handler).await,
            Begun::Existing(existing) => Ok(existing.into()),
        }
    }

    /// Claims an operation, or says what became of it, after waiting as the operation's
    /// [`OnConcurrent`] says if it was busy.
    ///
    /// # Errors
    ///
    /// As [`Engine::begin`].
    pub async fn begin_or_wait(&self, operation: &Operation) -> Result<Begun, RunError> {
        match self.begin(operation).await? {
            Begun::Existing(Existing::Busy(busy)) => self.wait_and_begin(operation, busy).await,
            begun => Ok(begun),
        }
    }

    /// The same for an operation that was found busy already.
    ///
    /// # Errors
    ///
    /// As [`Engine::begin`].
    pub async fn wait_and_begin(
        &self,
        operation: &Operation,
        mut busy: Busy,
    ) -> Result<Begun, RunError> {
        let mut patience = Patience::new(operation.concurrent_rule());
        loop {
            match self.wait(operation, busy, &mut patience).await? {
                Waited::GiveUp => return Ok(Begun::Existing(Existing::Busy(busy))),
                Waited::Ended => {}
            }
            if matches!(operation.concurrent_rule(), OnConcurrent::Wait(_)) {
                return self.await_outcome(operation, busy, patience).await.map(Begun::Existing);
            }
            busy = match self.begin(operation).await? {
                Begun::Existing(Existing::Busy(busy)) => busy,
                begun => return Ok(begun),
            };
        }
    }

    /// The same in a task of its own: it goes on when the caller's future is dropped, and its
    /// outcome is stored for the retry to find.
    ///
    /// # Errors
    ///
    /// As [`Engine::run`], and [`RunError::Stopped`] if the runtime shuts down meanwhile.
    ///
    /// # Panics
    ///
    /// If the handler does, or outside a tokio runtime.
    pub fn run_detached<H, F>(
        &self,
        operation: Operation,
        handler: H,
    ) -> impl Future<Output = Result<Ran, RunError>> + Send + use<H, F>
    where
        H: FnOnce(Context) -> F + Send + 'static,
        F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
    {
        let engine = self.clone();
        let task = tokio::spawn(async move { engine.run(&operation, handler).await });
        async move {
            match task.await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    Err(_) => Err(RunError::Stopped),
                },
            }
        }
    }

    /// Runs the handler under a claim and settles it: the second half of [`Engine::run`], for
    /// doors that take the first step themselves. The operation must be the one that was begun.
    ///
    /// # Errors
    ///
    /// If what the handler said could not be stored.
    ///
    /// # Panics
    ///
    /// If the handler does, after the operation has been abandoned.
    pub async fn execute<H, F>(
        &self,
        operation: &Operation,
        mut claim: HeldClaim,
        handler: H,
    ) -> Result<Ran, RunError>
    where
        H: FnOnce(Context) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        let context = Context::new(&self.inner, operation, &claim);
        let limit = operation.handler_limit();
        let ended = drive(pin!(Handling::new(handler, context)), limit, claim.active()).await;
        let fence = claim.fence();
        let (action, said) = match ended {
            Ended::Itself(Ok(outcome)) => {
                (Action::Complete(fence, outcome.clone()), Said::Outcome(outcome))
            }
            // It may have taken effect, and nobody may run it twice.
            Ended::Itself(Err(HandlerError::Unclassified(error))) if claim.is_at_most_once() => {
                let cause = error.body().map(|text| Why::new(&String::from_utf8_lossy(text)));
                let why = Abandonment { reason: UnknownReason::Reported, cause };
                (Action::Abandon(fence, why), Said::Unclassified(error))
            }
            Ended::Itself(Err(
                HandlerError::Retryable(failure) | HandlerError::Unclassified(failure),
            )) => (claim.failure(failure.clone(), FailureKind::Passing), Said::Failure(failure)),
            Ended::Itself(Err(HandlerError::Permanent(failure))) => {
                (claim.failure(failure.clone(), FailureKind::Permanent), Said::Failure(failure))
            }
            Ended::Itself(Err(HandlerError::NotExecuted)) => {
                (Action::Release(fence), Said::Nothing(Ran::Released))
            }
            Ended::Itself(Err(HandlerError::Unknown)) => abandoned(fence, UnknownReason::Reported),
            Ended::TimedOut => abandoned(fence, UnknownReason::TimedOut),
            Ended::Panicked(panic) => {
                // The panic goes on whatever the store says; a lapsed lease says the same.
                let _ = claim.abandon(UnknownReason::Panicked).await;
                resume_unwind(panic)
            }
            Ended::Lost => {
                claim.forget();
                return self.superseded(operation).await;
            }
        };
        self.settle(operation, claim, action, said).await
    }
}

fn abandoned(fence: Fence, reason: UnknownReason) -> (Action, Said) {
    (Action::Abandon(fence, reason.into()), Said::Nothing(Ran::Abandoned(reason)))
}

/// What the handler said, for the caller to hear once it is stored.
pub(super) enum Said {
    Outcome(Outcome),
    Failure(Outcome),
    Unclassified(Outcome),
    Nothing(Ran),
}
