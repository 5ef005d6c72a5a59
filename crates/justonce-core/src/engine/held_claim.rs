//! A claim that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::background::bounded;
use super::begin::unexpected;
use super::builder::Inner;
use super::context::Explainer;
use super::not_stored::NotStoredWhy;
use super::renewal::Active;
use super::settle::{Unsettled, persist};
use crate::claim::{Checkpoint, Fence};
use crate::error::StoreResult;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::policy::OnLapsed;
use crate::protocol::{Action, Answer, Claimed, Failure, FailureKind, Lost, Step, UnknownReason};
use crate::record_id::RecordId;

/// A claim that is held: its lease is renewed in the background until it is settled, dropped, or
/// reaches its cap.
///
/// Dropping it unsettled says that it may have taken effect: under `hold` the operation becomes
/// unknown, otherwise the next begin takes over at once. If its end was reported before,
/// and that could not be stored yet, dropping it takes nothing back: it is stored in the
/// background.
pub struct HeldClaim {
    inner: Arc<Inner>,
    active: Arc<Active>,
    claimed: Claimed,
    /// The last step that is to settle it, until it is stored.
    pending: Option<Step>,
    settled: bool,
    at_most_once: bool,
    lease_cap: Duration,
    place: Option<OwnedSemaphorePermit>,
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
        active: Arc<Active>,
    ) -> Self {
        let policy = operation.policy();
        Self {
            inner,
            active,
            claimed,
            pending: None,
            settled: false,
            at_most_once: policy.on_lapsed() == OnLapsed::Hold,
            lease_cap: policy.lease_cap(),
            place: Some(place),
        }
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

    /// The last checkpoint of the claim before, under `resume`.
    #[must_use]
    pub const fn checkpoint(&self) -> Option<&Checkpoint> {
        self.claimed.checkpoint.as_ref()
    }

    /// Says what is seen while the operation runs, also to the next holder: see
    /// [`Context::explain`](super::Context::explain).
    #[must_use]
    pub fn explainer(&self) -> Explainer {
        Explainer(Arc::clone(&self.active))
    }

    pub(super) const fn active(&self) -> &Arc<Active> {
        &self.active
    }

    /// Whether another owner has taken over, as far as the renewals know.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.active.is_lost()
    }

    /// Whether the operation was begun under `hold`.
    pub(super) const fn is_at_most_once(&self) -> bool {
        self.at_most_once
    }

    /// Stores the outcome.
    ///
    /// # Errors
    ///
    /// If the store fails. The claim is still held then, and the call may be repeated.
    pub async fn complete(&mut self, outcome: Outcome) -> StoreResult<Settlement> {
        self.settle(Action::Complete(self.fence(), outcome)).await
    }

    /// Stores a failure: it did not take effect and may be tried again. The policy decides what
    /// happens next.
    ///
    /// # Errors
    ///
    /// If the store fails. The claim is still held then, and the call may be repeated.
    pub async fn fail(&mut self, failure: Outcome) -> StoreResult<Settlement> {
        let action = self.failure(failure, FailureKind::Passing);
        self.settle(action).await
    }

    /// Stores a failure: it did not take effect and never will. It is replayed.
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

    /// Saves a checkpoint.
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
    async fn settle(&mut self, action: Action) -> StoreResult<Settlement> {
        self.say(action);
        // The caller repeats it.
        self.store_said(Instant::now()).await
    }

    /// How the claim ends. From now on this is stored, whatever becomes of the caller.
    pub(super) fn say(&mut self, mut action: Action) {
        self.active.explain(&mut action);
        self.pending = Some(Step::new(self.id(), action));
    }

    /// Stores the pending step, in as many tries as the time allows, and at least one.
    pub(super) async fn store_said(&mut self, until: Instant) -> StoreResult<Settlement> {
        let Some(step) = &self.pending else { return Ok(Settlement::Lost(Lost::Settled)) };
        self.active.before(&self.inner, step).await;
        let settlement = persist(&self.inner, step, until).await?;
        self.forget();
        Ok(settlement)
    }

    /// Nothing more is done about the claim, neither renewals nor an abandon.
    pub(super) fn forget(&mut self) {
        self.settled = true;
        self.active.end(&self.inner);
    }
}

/// Takes a step that ends a claim.
pub(super) async fn settled_by(inner: &Inner, step: &Step) -> StoreResult<Settlement> {
    match inner.store.apply(step).await? {
        Answer::Applied | Answer::Held(_) => Ok(Settlement::Stored),
        Answer::Lost(lost) => Ok(Settlement::Lost(lost)),
        other => Err(unexpected(&step.action, &other)),
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.settled = true;
        let inner = Arc::clone(&self.inner);
        let Some(step) = self.pending.take() else {
            self.forget();
            let mut action = Action::Abandon(self.fence(), UnknownReason::Dropped.into());
            self.active.explain(&mut action);
            let step = Step::new(self.id(), action);
            let active = Arc::clone(&self.active);
            self.inner.background.finish(async move {
                active.before(&inner, &step).await;
                // One try is enough: if it fails, the lease lapses and says the same.
                if let Err(error) = bounded(inner.store.apply(&step)).await {
                    inner.not_stored(&step, NotStoredWhy::Failed(&error));
                }
            });
            return;
        };
        let rest = Unsettled::new(inner, Arc::clone(&self.active), step, self.place.take());
        self.inner.background.spawn(rest.settle_within(self.lease_cap));
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
