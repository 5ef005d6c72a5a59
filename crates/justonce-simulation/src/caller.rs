//! A caller: it runs an operation through one of the engine's doors, and may leave at any await.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use justonce_core::engine::{Begun, Context, HandlerError, Settlement};
use justonce_core::{
    BusyWhy, Fence, HeldClaim, Operation, Outcome, Ran, RunError, StoreResult, UnknownReason,
};
use tokio::time::sleep;

use crate::history::{Answer, Log, Said, Subject, What};
use crate::plan::{CallPlan, Door, HandlerEnd, HandlerPlan, Leaves};
use crate::process::Life;

/// How often a result is given to a claim that was begun by hand.
const TRIES_BY_HAND: u32 = 3;
/// The pause between them.
const PAUSE_BY_HAND: Duration = Duration::from_millis(150);

/// A call, with all that it needs.
pub(crate) struct Call {
    pub(crate) life: Arc<Life>,
    pub(crate) log: Log,
    pub(crate) plan: CallPlan,
    pub(crate) operation: Operation,
    pub(crate) subject: Subject,
}

impl Call {
    /// Calls, and writes down what comes of it.
    pub(crate) async fn run(self) -> Option<Answer> {
        let how = format!("{:?}, {:?}", self.plan.door, self.plan.on_concurrent);
        self.log.add(What::Asked { of: self.subject, how });
        let body = AssertUnwindSafe(self.answer()).catch_unwind();
        let answered = match self.plan.leaves {
            Leaves::Never => Some(body.await),
            Leaves::AtAwait(awaits) => Leaving { inner: Some(Box::pin(body)), awaits }.await,
            Leaves::After(time) => tokio::select! {
                biased;
                answered = body => Some(answered),
                () = sleep(time) => None,
            },
        };
        if self.life.is_dead() {
            return None;
        }
        let answer = answered.map(|answer| answer.unwrap_or(Answer::Panicked));
        let of = self.subject;
        self.log.add(match answer.clone() {
            None => What::Left { of },
            Some(answer) => What::Answered { of, answer },
        });
        answer
    }

    async fn answer(&self) -> Answer {
        let handler = Handler {
            life: Arc::clone(&self.life),
            log: self.log.clone(),
            plan: self.plan.handler.clone(),
            subject: self.subject,
        };
        let engine = &self.life.engine;
        match self.plan.door {
            Door::Run => {
                answer_of(engine.run(&self.operation, |context| handler.run(context)).await)
            }
            Door::Detached => {
                let operation = self.operation.clone();
                let ran = engine.run_detached(operation, |context| handler.run(context));
                answer_of(ran.await)
            }
            Door::ByHand => match engine.begin_or_wait(&self.operation).await {
                Ok(Begun::Claimed(claim)) => by_hand(handler, claim).await,
                Ok(Begun::Existing(existing)) => answer_of(Ok(existing.into())),
                Err(error) => answer_of(Err(error)),
            },
        }
    }
}

/// A future that is dropped at one of its awaits.
struct Leaving<F> {
    inner: Option<Pin<Box<F>>>,
    awaits: u32,
}

impl<F: Future> Future for Leaving<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        if let Poll::Ready(output) = inner.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        self.awaits = self.awaits.saturating_sub(1);
        if self.awaits == 0 {
            self.inner = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

/// A handler that does what was drawn.
struct Handler {
    life: Arc<Life>,
    log: Log,
    plan: HandlerPlan,
    subject: Subject,
}

/// Writes down that a handler was dropped, unless it has ended.
struct Running<'a> {
    handler: &'a Handler,
    fence: Fence,
    ended: bool,
}

impl Running<'_> {
    fn says(&mut self, said: Said) {
        self.ended = true;
        self.handler.log(What::Said { of: self.handler.subject, fence: self.fence, said });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.handler.log(What::Cut { of: self.handler.subject, fence: self.fence });
        }
    }
}

impl Handler {
    /// What is done by a process that is dead is seen by nobody.
    fn log(&self, what: What) {
        if !self.life.is_dead() {
            self.log.add(what);
        }
    }

    fn started(&self, fence: Fence, attempt: u32, checkpoint: u32) -> Running<'_> {
        self.log(What::Started { of: self.subject, fence, attempt, checkpoint });
        Running { handler: self, fence, ended: false }
    }

    async fn run(self, context: Context) -> Result<Outcome, HandlerError> {
        let fence = context.fence();
        let saved = context.checkpoint().map_or(0, |point| number(point.data()));
        let mut running = self.started(fence, context.attempt(), saved);
        let mut next = saved;
        for part in &self.plan.parts {
            sleep(*part).await;
            next += 1;
            if context.save("part", next.to_string()).await.is_ok() {
                self.log(What::Saved { of: self.subject, fence, number: next });
            }
        }
        self.end(&mut running).await
    }

    async fn end(&self, running: &mut Running<'_>) -> Result<Outcome, HandlerError> {
        let text = format!("call {} with fence {}", self.subject.call, running.fence);
        let outcome = Outcome::bytes(text.clone());
        match self.plan.end {
            HandlerEnd::Ok => {
                running.says(Said::Ok(text));
                Ok(outcome)
            }
            HandlerEnd::Retryable => {
                running.says(Said::Retryable(text));
                Err(HandlerError::Retryable(outcome))
            }
            HandlerEnd::Permanent => {
                running.says(Said::Permanent(text));
                Err(HandlerError::Permanent(outcome))
            }
            HandlerEnd::NotExecuted => {
                running.says(Said::NotExecuted);
                Err(HandlerError::NotExecuted)
            }
            HandlerEnd::Unknown => {
                running.says(Said::Unknown);
                Err(HandlerError::Unknown)
            }
            HandlerEnd::Unclassified => {
                running.says(Said::Unclassified(text));
                Err(HandlerError::Unclassified(outcome))
            }
            HandlerEnd::Panics => {
                running.says(Said::Panicked);
                resume_unwind(Box::new("the handler panics"))
            }
            HandlerEnd::Hangs => std::future::pending().await,
        }
    }
}

/// The number in a checkpoint.
fn number(data: &[u8]) -> u32 {
    std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Executes under a claim that was begun by hand, and says how it ended.
async fn by_hand(handler: Handler, mut claim: HeldClaim) -> Answer {
    let saved = claim.checkpoint().map_or(0, |point| number(point.data()));
    let mut running = handler.started(claim.fence(), claim.attempt(), saved);
    for part in &handler.plan.parts {
        sleep(*part).await;
    }
    let result = handler.end(&mut running).await;
    let answer = match &result {
        Ok(outcome) => Answer::Executed(text(outcome)),
        Err(HandlerError::Retryable(failure) | HandlerError::Permanent(failure)) => {
            Answer::Failed(text(failure))
        }
        Err(HandlerError::NotExecuted) => Answer::Released,
        Err(_) => Answer::Abandoned(UnknownReason::Reported),
    };
    let mut tries = TRIES_BY_HAND;
    loop {
        tries -= 1;
        match settle(&mut claim, &result).await {
            Ok(Settlement::Stored) => return answer,
            Ok(Settlement::Lost(_)) => return Answer::Superseded(None),
            Err(_) if tries == 0 => {
                return Answer::NotStored(answer.reply().unwrap_or_default().to_owned());
            }
            Err(_) => sleep(PAUSE_BY_HAND).await,
        }
    }
}

async fn settle(
    claim: &mut HeldClaim,
    result: &Result<Outcome, HandlerError>,
) -> StoreResult<Settlement> {
    match result {
        Ok(outcome) => claim.complete(outcome.clone()).await,
        Err(HandlerError::Retryable(failure)) => claim.fail(failure.clone()).await,
        Err(HandlerError::Permanent(failure)) => claim.fail_for_good(failure.clone()).await,
        Err(HandlerError::NotExecuted) => claim.release().await,
        Err(_) => claim.abandon(UnknownReason::Reported).await,
    }
}

fn text(outcome: &Outcome) -> String {
    String::from_utf8_lossy(outcome.body().unwrap_or_default()).into_owned()
}

/// What a caller was answered, as the history has it.
pub(crate) fn answer_of(ran: Result<Ran, RunError>) -> Answer {
    match ran {
        Ok(Ran::Executed(outcome)) => Answer::Executed(text(&outcome)),
        Ok(Ran::Replayed(outcome)) => Answer::Replayed(text(&outcome)),
        Ok(Ran::Failed(failure)) => Answer::Failed(text(&failure)),
        Ok(Ran::FailedBefore(failure)) => Answer::FailedBefore(text(&failure)),
        Ok(Ran::Released) => Answer::Released,
        Ok(Ran::Busy(busy)) => {
            Answer::Busy { fence: busy.fence, running: busy.why == BusyWhy::Running }
        }
        Ok(Ran::Unknown(unknown)) => {
            Answer::Unknown { fence: unknown.fence, reason: unknown.reason }
        }
        Ok(Ran::Abandoned(reason)) => Answer::Abandoned(reason),
        Ok(Ran::Unclassified(error)) => Answer::Unclassified(text(&error)),
        Ok(Ran::Superseded(outcome)) => Answer::Superseded(outcome.as_ref().map(text)),
        Ok(Ran::Mismatch) => Answer::Mismatch,
        Ok(Ran::Expired(_)) => Answer::Expired,
        Err(RunError::Store(error)) => Answer::NothingExecuted(error.to_string()),
        Err(RunError::Overloaded { .. }) => Answer::Overloaded,
        Err(RunError::NotStored { outcome, .. }) => Answer::NotStored(text(&outcome)),
        Err(_) => Answer::Stopped,
    }
}
