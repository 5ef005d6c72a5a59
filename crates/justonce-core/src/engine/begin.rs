//! Begin: one call to the store, safe to repeat when its reply is lost.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::builder::{Engine, Inner};
use super::held_claim::HeldClaim;
use super::orphaned_begins::OrphanedBegins;
use super::ran::RunError;
use super::renewal::Active;
use crate::claim::{Fence, Token};
use crate::error::{Effect, StoreError, StoreErrorKind, StoreResult};
use crate::operation::Operation;
use crate::protocol::{Action, Answer, Existing, Step};

/// The answer to a begin.
#[derive(Debug)]
pub enum Begun {
    /// The operation is yours to execute.
    Claimed(HeldClaim),
    /// What became of it.
    Existing(Existing),
}

impl Engine {
    /// Claims an operation, or says what became of it. The step-by-step API: the caller that gets
    /// the claim executes and then settles it.
    ///
    /// ```
    /// use justonce_core::engine::Begun;
    /// use justonce_core::{Engine, Key, ManualClock, Operation, Outcome, Scope};
    /// # use justonce_core::memory::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    /// let operation = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?);
    /// if let Begun::Claimed(mut claim) = engine.begin(&operation).await? {
    ///     // Execute, then:
    ///     claim.complete(Outcome::bytes("done")).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the store fails, or too many operations are executing. Nothing may be executed then.
    pub async fn begin(&self, operation: &Operation) -> Result<Begun, RunError> {
        match self.place(operation).await? {
            Queued::Permit(permit) => self.begin_with(operation, permit).await,
            Queued::Existing(existing) => Ok(Begun::Existing(existing)),
        }
    }

    /// Says what became of an operation without ever claiming it: nothing if a begin could.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn peek(&self, operation: &Operation) -> StoreResult<Option<Existing>> {
        let step = Step::new(operation.id(), Action::Peek(operation.fingerprint()));
        match self.inner.store.apply(&step).await? {
            Answer::Existing(existing) => Ok(Some(existing)),
            Answer::Claimable => Ok(None),
            other => Err(unexpected(&step.action, &other)),
        }
    }

    /// A place among the executing operations. Duplicates need none, so that replays go on while
    /// the engine is full.
    async fn place(&self, operation: &Operation) -> Result<Queued, RunError> {
        let executions = &self.inner.executions;
        if let Ok(permit) = Arc::clone(executions).try_acquire_owned() {
            return Ok(Queued::Permit(permit));
        }
        if let Some(existing) = self.peek(operation).await? {
            return Ok(Queued::Existing(existing));
        }
        let limits = &self.inner.limits;
        let queue = Arc::clone(executions).acquire_owned();
        match tokio::time::timeout(limits.queue_timeout, queue).await {
            Ok(Ok(permit)) => Ok(Queued::Permit(permit)),
            Ok(Err(_)) => Err(RunError::Stopped),
            Err(_) => Err(RunError::Overloaded {
                limit: limits.max_concurrent,
                waited: limits.queue_timeout,
            }),
        }
    }

    async fn begin_with(
        &self,
        operation: &Operation,
        permit: OwnedSemaphorePermit,
    ) -> Result<Begun, RunError> {
        let inner = &self.inner;
        let token = Token(inner.entropy.next_u128());
        let step = Step::begin(operation, inner.owner.clone(), token);
        // From here on a dropped future may leave a claim behind without an owner who knows of it.
        let guard = GiveBack { inner, step: Some(&step) };
        let asked_at = Instant::now();
        let answer = inner.store.apply(&step).await;
        match answer {
            Ok(Answer::Claimed(claimed)) => {
                guard.disarm();
                let doubt = step.is_in_doubt().then_some(step);
                let active = Active::start(inner, operation, &claimed, asked_at, doubt);
                let claim = HeldClaim::new(Arc::clone(inner), operation, claimed, permit, active);
                Ok(Begun::Claimed(claim))
            }
            Ok(Answer::Existing(existing)) => {
                guard.disarm();
                if step.is_in_doubt() {
                    OrphanedBegins::look_for(inner, step, Fence::NONE);
                }
                Ok(Begun::Existing(existing))
            }
            Ok(Answer::Held(unknown)) => {
                guard.disarm();
                Ok(Begun::Existing(Existing::Unknown(unknown)))
            }
            Ok(other) => Err(unexpected(&step.action, &other).into()),
            Err(error) => {
                if error.effect() == Effect::NotApplied {
                    guard.disarm();
                }
                Err(error.into())
            }
        }
    }
}

enum Queued {
    Permit(OwnedSemaphorePermit),
    Existing(Existing),
}

/// Gives back a claim of which we do not know whether we have it.
struct GiveBack<'a> {
    inner: &'a Arc<Inner>,
    step: Option<&'a Step>,
}

impl GiveBack<'_> {
    fn disarm(mut self) {
        self.step = None;
    }
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        if let Some(step) = self.step.take() {
            OrphanedBegins::give_back(self.inner, step.clone());
        }
    }
}

/// A store that breaks the protocol. The step may have been applied.
pub(super) fn unexpected(action: &Action, answer: &Answer) -> StoreError {
    let message = format!("the store answered {} to {}", answer.name(), action.name());
    StoreError::maybe_applied(StoreErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::{Entropy, Key, ManualClock, Scope};

    #[tokio::test]
    async fn of_two_processes_from_one_snapshot_one_gets_the_claim() {
        let store: Arc<MemoryStore> = Arc::new(MemoryStore::new(ManualClock::default()));
        let before = Entropy::from_system();
        let engine = |entropy| {
            let runtime = tokio::runtime::Handle::current();
            Engine::builder_shared(store.clone()).entropy(entropy).background(runtime).build()
        };
        let (one, other) = (engine(before.snapshot()), engine(before.snapshot()));
        let order = Operation::without_fingerprint(Scope::global(), Key::client("17").unwrap());
        let first = one.begin(&order).await.unwrap();
        assert!(matches!(first, Begun::Claimed(_)));
        let second = other.begin(&order).await.unwrap();
        assert!(matches!(second, Begun::Existing(Existing::Busy(_))), "{second:?}");
    }
}
