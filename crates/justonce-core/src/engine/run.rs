//! Run: begin, execute, complete, or replay.

use std::panic::resume_unwind;
use std::pin::pin;

use super::begin::Begun;
use super::builder::Engine;
use super::context::Context;
use super::handler_error::HandlerError;
use super::handling::{Ended, Handling, drive};
use super::held_claim::HeldClaim;
use super::ran::{Ran, RunError};
use super::wait::{WaitLimit, Waited};
use crate::claim::Fence;
use crate::operation::{OnConcurrent, Operation};
use crate::outcome::Outcome;
use crate::protocol::{Abandonment, Action, Busy, Existing, FailureKind, UnknownReason, Why};

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
        let mut limit = WaitLimit::new(operation.concurrent_rule());
        loop {
            match self.wait(operation, busy, &mut limit).await? {
                Waited::GiveUp => return Ok(Begun::Existing(Existing::Busy(busy))),
                Waited::Settled(Existing::Busy(still)) => {
                    busy = still;
                    continue;
                }
                Waited::Settled(existing) => return Ok(Begun::Existing(existing)),
                Waited::Changed => {}
            }
            if matches!(operation.concurrent_rule(), OnConcurrent::Wait(_)) {
                return self.await_outcome(operation, busy, limit).await.map(Begun::Existing);
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
    /// callers that take the first step themselves. The operation must be the one that was begun.
    ///
    /// # Errors
    ///
    /// If the handler's result could not be stored.
    ///
    /// # Panics
    ///
    /// If the handler does, after the operation has been abandoned.
    pub async fn execute<H, F>(
        &self,
        operation: &Operation,
        claim: HeldClaim,
        handler: H,
    ) -> Result<Ran, RunError>
    where
        H: FnOnce(Context) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        self.execute_split(operation, claim, handler, |result| (result, ())).await.0
    }

    /// As [`Engine::execute`], for handlers that return a value beside their result: the value is
    /// handed through, whatever becomes of the result. There is none if the handler did not
    /// return: it timed out, or lost its claim.
    ///
    /// ```
    /// use justonce_core::engine::Begun;
    /// use justonce_core::memory::MemoryStore;
    /// use justonce_core::{Engine, Key, ManualClock, Operation, Outcome, Ran, Scope};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    /// let order = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?);
    /// let Begun::Claimed(claim) = engine.begin(&order).await? else { panic!("it is new") };
    /// let handler = async |_| (Ok(Outcome::bytes("paid")), "receipt 17");
    /// let (ran, value) = engine.execute_with(&order, claim, handler).await;
    /// assert_eq!(ran?, Ran::Executed(Outcome::bytes("paid")));
    /// assert_eq!(value, Some("receipt 17"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the handler does, after the operation has been abandoned.
    pub async fn execute_with<H, F, T>(
        &self,
        operation: &Operation,
        claim: HeldClaim,
        handler: H,
    ) -> (Result<Ran, RunError>, Option<T>)
    where
        H: FnOnce(Context) -> F,
        F: Future<Output = (Result<Outcome, HandlerError>, T)>,
    {
        self.execute_split(operation, claim, handler, |output| output).await
    }

    /// A trait for both outputs would be a projection in the future's type, and the compiler
    /// cannot show that such a future is `Send` where the handler borrows.
    async fn execute_split<H, F, O, T>(
        &self,
        operation: &Operation,
        mut claim: HeldClaim,
        handler: H,
        split: fn(O) -> (Result<Outcome, HandlerError>, T),
    ) -> (Result<Ran, RunError>, Option<T>)
    where
        H: FnOnce(Context) -> F,
        F: Future<Output = O>,
    {
        let context = Context::new(&self.inner, operation, &claim);
        let limit = operation.handler_limit();
        let ended = drive(pin!(Handling::new(handler, context)), limit, claim.active()).await;
        let ((action, reported), value) = match ended {
            Ended::Returned(output) => {
                let (result, value) = split(output);
                (settlement(&claim, result), Some(value))
            }
            Ended::TimedOut => (abandoned(claim.fence(), UnknownReason::TimedOut), None),
            Ended::Panicked(panic) => {
                // The panic continues whatever the store answers; a lapsed lease says the same.
                let _ = claim.abandon(UnknownReason::Panicked).await;
                resume_unwind(panic)
            }
            Ended::Lost => {
                claim.forget();
                return (self.superseded(operation).await, None);
            }
        };
        (self.settle(operation, claim, action, reported).await, value)
    }
}

/// The step that stores a handler's result, and what its caller gets once it is stored.
fn settlement(claim: &HeldClaim, result: Result<Outcome, HandlerError>) -> (Action, Reported) {
    let fence = claim.fence();
    match result {
        Ok(outcome) => (Action::Complete(fence, outcome.clone()), Reported::Outcome(outcome)),
        // It may have taken effect, and must not run twice.
        Err(HandlerError::Unclassified(error)) if claim.is_at_most_once() => {
            let cause = error.body().map(|text| Why::new(&String::from_utf8_lossy(text)));
            let why = Abandonment { reason: UnknownReason::Reported, cause };
            (Action::Abandon(fence, why), Reported::Unclassified(error))
        }
        Err(HandlerError::Retryable(failure) | HandlerError::Unclassified(failure)) => {
            (claim.failure(failure.clone(), FailureKind::Passing), Reported::Failure(failure))
        }
        Err(HandlerError::Permanent(failure)) => {
            (claim.failure(failure.clone(), FailureKind::Permanent), Reported::Failure(failure))
        }
        Err(HandlerError::NotExecuted) => {
            (Action::Release(fence), Reported::Nothing(Ran::Released))
        }
        Err(HandlerError::Unknown) => abandoned(fence, UnknownReason::Reported),
    }
}

fn abandoned(fence: Fence, reason: UnknownReason) -> (Action, Reported) {
    (Action::Abandon(fence, reason.into()), Reported::Nothing(Ran::Abandoned(reason)))
}

/// What the handler reported, for the caller once it is stored.
pub(super) enum Reported {
    Outcome(Outcome),
    Failure(Outcome),
    Unclassified(Outcome),
    Nothing(Ran),
}
