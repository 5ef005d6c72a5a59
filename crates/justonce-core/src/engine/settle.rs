//! Storing what a handler said, through lost replies and a store that is away.

use std::time::Duration;

use tokio::time::Instant;

use super::builder::Engine;
use super::held::{HeldClaim, Settlement};
use super::ran::{Ran, RunError};
use super::run::Said;
use crate::error::StoreResult;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::policy::OnFailure;
use crate::step::{Action, Existing, FailureKind, Lost};

/// The first pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause while the caller waits.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause in the background.
const MAX_BACKGROUND_PAUSE: Duration = Duration::from_secs(5);

impl Engine {
    /// Stores what the handler said. All these steps are safe to repeat, so they are.
    pub(super) async fn settle(
        &self,
        operation: &Operation,
        mut claim: HeldClaim,
        action: Action,
        said: Said,
    ) -> Result<Ran, RunError> {
        let until = Instant::now() + self.inner.limits.settle_timeout;
        match persist(&mut claim, &action, until, MAX_PAUSE).await {
            Ok(Settlement::Stored) => Ok(told(said)),
            // An earlier try whose reply was lost has freed the key already.
            Ok(Settlement::Lost(Lost::Gone)) if frees_key(operation, &action) => Ok(told(said)),
            Ok(Settlement::Lost(_)) => self.superseded(operation).await,
            Err(source) => {
                if source.is_passing() {
                    let until = Instant::now() + operation.policy().lease_cap();
                    tokio::spawn(async move {
                        // Nobody is left to tell: if this fails too, the lease lapses.
                        let _ = persist(&mut claim, &action, until, MAX_BACKGROUND_PAUSE).await;
                    });
                } else {
                    // The store has stopped: an abandon would only fail as well.
                    claim.forget();
                }
                let outcome = match said {
                    Said::Outcome(outcome)
                    | Said::Failure(outcome)
                    | Said::Unclassified(outcome) => outcome,
                    Said::Nothing(_) => Outcome::empty(),
                };
                Err(RunError::NotStored { outcome: Box::new(outcome), source })
            }
        }
    }

    /// What a caller hears whose claim was lost: the winner's outcome, if there is one.
    pub(super) async fn superseded(&self, operation: &Operation) -> Result<Ran, RunError> {
        Ok(match self.peek(operation).await {
            Ok(Some(Existing::Completed(replay))) => Ran::Superseded(Some(replay.outcome)),
            Ok(Some(existing @ (Existing::Failed(_) | Existing::Unknown(_)))) => existing.into(),
            Ok(_) | Err(_) => Ran::Superseded(None),
        })
    }
}

fn told(said: Said) -> Ran {
    match said {
        Said::Outcome(outcome) => Ran::Executed(outcome),
        Said::Failure(failure) => Ran::Failed(failure),
        Said::Unclassified(error) => Ran::Unclassified(error),
        Said::Nothing(ran) => ran,
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

/// Tries until the store answers, for good or for bad, or the time is over.
async fn persist(
    claim: &mut HeldClaim,
    action: &Action,
    until: Instant,
    max_pause: Duration,
) -> StoreResult<Settlement> {
    let mut pause = FIRST_PAUSE;
    loop {
        match claim.settle(action.clone()).await {
            Err(error) if error.is_passing() && Instant::now() + pause < until => {}
            result => return result,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(max_pause);
    }
}
