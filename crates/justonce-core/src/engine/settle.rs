//! Stores a handler's result, through lost replies and a store that is away.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::background::bounded;
use super::builder::{Engine, Inner};
use super::held_claim::{HeldClaim, Settlement, settled_by};
use super::not_stored::{NotStoredWhy, is_loss};
use super::ran::{Ran, RunError};
use super::renewal::Active;
use super::run::Reported;
use crate::error::StoreResult;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::policy::OnFailure;
use crate::protocol::{Action, Existing, FailureKind, Lost, Step};

/// The first pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause while the caller waits.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause in the background.
const MAX_BACKGROUND_PAUSE: Duration = Duration::from_secs(5);

impl Engine {
    /// Stores the handler's result. All these steps are safe to repeat, so they are. Where this is
    /// not done when it ends or is dropped, the claim goes on with it in the background.
    pub(super) async fn settle(
        &self,
        operation: &Operation,
        mut claim: HeldClaim,
        action: Action,
        reported: Reported,
    ) -> Result<Ran, RunError> {
        let until = Instant::now() + self.inner.limits.settle_timeout;
        let frees_key = frees_key(operation, &action);
        claim.say(action);
        match claim.store_said(until).await {
            Ok(Settlement::Stored) => Ok(ran(reported)),
            // An earlier try whose reply was lost has freed the key already.
            Ok(Settlement::Lost(Lost::Gone)) if frees_key => Ok(ran(reported)),
            Ok(Settlement::Lost(_)) => self.superseded(operation).await,
            Err(source) => {
                if !source.is_passing() {
                    // The store has stopped: further tries would only fail as well.
                    claim.forget();
                }
                let outcome = match reported {
                    Reported::Outcome(outcome)
                    | Reported::Failure(outcome)
                    | Reported::Unclassified(outcome) => outcome,
                    Reported::Nothing(_) => Outcome::empty(),
                };
                Err(RunError::NotStored { outcome: Box::new(outcome), source })
            }
        }
    }

    /// The result of a caller whose claim was lost: the winner's outcome, if there is one.
    pub(super) async fn superseded(&self, operation: &Operation) -> Result<Ran, RunError> {
        Ok(match self.peek(operation).await {
            Ok(Some(Existing::Completed(replay))) => Ran::Superseded(Some(replay.outcome)),
            Ok(Some(existing @ (Existing::Failed(_) | Existing::Unknown(_)))) => existing.into(),
            Ok(_) | Err(_) => Ran::Superseded(None),
        })
    }
}

fn ran(reported: Reported) -> Ran {
    match reported {
        Reported::Outcome(outcome) => Ran::Executed(outcome),
        Reported::Failure(failure) => Ran::Failed(failure),
        Reported::Unclassified(error) => Ran::Unclassified(error),
        Reported::Nothing(ran) => ran,
    }
}

/// Whether a step may leave nothing behind, so that its repetition finds nothing.
fn frees_key(operation: &Operation, action: &Action) -> bool {
    match action {
        Action::Release(_) => true,
        Action::Fail(_, failure) => {
            failure.kind == FailureKind::Passing
                && operation.policy().on_failure() == OnFailure::Release
        }
        _ => false,
    }
}

/// A claim that its caller left after it was said how it ended. It is renewed until that is
/// stored.
pub(super) struct Unsettled {
    inner: Arc<Inner>,
    active: Arc<Active>,
    step: Step,
    /// It is stored, or was reported not to be.
    done: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl Unsettled {
    pub(super) const fn new(
        inner: Arc<Inner>,
        active: Arc<Active>,
        step: Step,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { inner, active, step, done: false, _place: place }
    }

    /// Stores it. If this fails too, the lease lapses, and the observer is told.
    pub(super) async fn settle_within(mut self, time: Duration) {
        let until = Instant::now() + time;
        let mut pause = FIRST_PAUSE;
        self.active.before(&self.inner, &self.step).await;
        let settled = loop {
            match bounded(settled_by(&self.inner, &self.step)).await {
                Err(error) if error.is_passing() && Instant::now() + pause < until => {}
                settled => break settled,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_BACKGROUND_PAUSE);
        };
        self.done = true;
        match &settled {
            Ok(Settlement::Lost(lost)) if is_loss(&self.step, *lost) => {
                self.inner.not_stored(&self.step, NotStoredWhy::Lost(*lost));
            }
            Ok(_) => {}
            Err(error) => self.inner.not_stored(&self.step, NotStoredWhy::Failed(error)),
        }
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.active.end(&self.inner);
        if !self.done {
            self.inner.not_stored(&self.step, NotStoredWhy::Stopped);
        }
    }
}

/// Tries until the store answers, for good or for bad, or the time is over.
pub(super) async fn persist(inner: &Inner, step: &Step, until: Instant) -> StoreResult<Settlement> {
    let mut pause = FIRST_PAUSE;
    loop {
        match settled_by(inner, step).await {
            Err(error) if error.is_passing() && Instant::now() + pause < until => {}
            result => return result,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}
