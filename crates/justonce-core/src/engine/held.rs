//! A claim in somebody's hands.

use std::fmt;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::begin::unexpected;
use super::builder::Inner;
use super::renewal::Active;
use crate::claim::{Checkpoint, Fence};
use crate::error::StoreResult;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::record::{RecordId, UnknownReason};
use crate::step::{Action, Answer, Claimed, Failure, FailureKind, Lost, Step};

/// A claim that is held: its lease is renewed in the background until it is settled, dropped, or
/// reaches its cap.
///
/// Dropping it unsettled says that it may have taken effect: under `hold` the operation becomes
/// unknown, otherwise the next begin takes over at once.
pub struct HeldClaim {
    inner: Arc<Inner>,
    active: Arc<Active>,
    claimed: Claimed,
    settled: bool,
    _place: OwnedSemaphorePermit,
}

/// What became of a write by the owner of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the write may have been refused"]
pub enum Settlement {
    /// It is stored.
    Stored,
    /// It changed nothing: the claim was lost.
    Lost(Lost),
}

impl HeldClaim {
    pub(super) fn new(
        inner: Arc<Inner>,
        operation: &Operation,
        claimed: Claimed,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let active = Active::start(&inner, operation.id(), &claimed);
        Self { inner, active, claimed, settled: false, _place: place }
    }

    /// The name of the record.
    #[must_use]
    pub fn id(&self) -> RecordId {
        self.active.id
    }

    /// The fence, to hand to systems that check it.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.claimed.fence
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.claimed.attempt
    }

    /// The last recovery point of the claim before, under `resume`.
    #[must_use]
    pub const fn checkpoint(&self) -> Option<&Checkpoint> {
        self.claimed.checkpoint.as_ref()
    }

    pub(super) const fn active(&self) -> &Arc<Active> {
        &self.active
    }

    /// Whether another owner has taken over, as far as the renewals know.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.active.is_lost()
    }

    /// Stores the outcome.
    ///
    /// # Errors
    ///
    /// If the store fails. The claim is still held then, and the call may be repeated.
    pub async fn complete(&mut self, outcome: Outcome) -> StoreResult<Settlement> {
        self.settle(Action::Complete(self.fence(), outcome)).await
    }

    /// Stores a failure that may pass; the policy decides what happens next.
    ///
    /// # Errors
    ///
    /// If the store fails. The claim is still held then, and the call may be repeated.
    pub async fn fail(&mut self, failure: Outcome) -> StoreResult<Settlement> {
        let action = self.failure(failure, FailureKind::Passing);
        self.settle(action).await
    }

    /// Stores a failure that will not pass; it is replayed.
    ///
    /// # Errors
    ///
    /// If the store fails. The claim is still held then, and the call may be repeated.
    pub async fn fail_for_good(&mut self, failure: Outcome) -> StoreResult<Settlement> {
        let action = self.failure(failure, FailureKind::Permanent);
        self.settle(action).await
    }

    /// Gives the key back. Only for operations that certainly did not take effect.
    ///
    /// # Errors
    ///
    /// If the store fails. The claim is still held then, and the call may be repeated.
    pub async fn release(&mut self) -> StoreResult<Settlement> {
        self.settle(Action::Release(self.fence())).await
    }

    /// Stops without knowing whether it took effect.
    ///
    /// # Errors
    ///
    /// If the store fails. The claim is still held then, and the call may be repeated.
    pub async fn abandon(&mut self, reason: UnknownReason) -> StoreResult<Settlement> {
        self.settle(Action::Abandon(self.fence(), reason.into())).await
    }

    /// Saves a recovery point.
    ///
    /// # Errors
    ///
    /// If the store fails. The call may be repeated.
    pub async fn save(&self, checkpoint: Checkpoint) -> StoreResult<Settlement> {
        self.active.save(&self.inner, self.active.numbered(checkpoint)).await
    }

    pub(super) fn failure(&self, outcome: Outcome, kind: FailureKind) -> Action {
        let jitter = self.inner.entropy.next_u32();
        Action::Fail(self.fence(), Failure { outcome, kind, jitter })
    }

    /// Takes a step that ends the claim.
    pub(super) async fn settle(&mut self, mut action: Action) -> StoreResult<Settlement> {
        self.active.explain(&mut action);
        let step = Step::new(self.id(), action);
        let settlement = match self.inner.store.apply(&step).await? {
            Answer::Applied | Answer::Held(_) => Settlement::Stored,
            Answer::Lost(lost) => Settlement::Lost(lost),
            other => return Err(unexpected(&step.action, &other)),
        };
        self.forget();
        Ok(settlement)
    }

    /// Nothing more is done about the claim, neither renewals nor an abandon.
    pub(super) fn forget(&mut self) {
        self.settled = true;
        self.inner.renewals.remove(&self.active);
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.forget();
        // Without a runtime there is nobody to say it; the lease will lapse.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let inner = Arc::clone(&self.inner);
            let mut action = Action::Abandon(self.fence(), UnknownReason::Dropped.into());
            self.active.explain(&mut action);
            let step = Step::new(self.id(), action);
            // One try is enough: if it fails, the lease lapses and says the same.
            runtime.spawn(async move { inner.store.apply(&step).await });
        }
    }
}

impl fmt::Debug for HeldClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldClaim")
            .field("id", &self.active.id)
            .field("fence", &self.claimed.fence)
            .field("attempt", &self.claimed.attempt)
            .finish_non_exhaustive()
    }
}
