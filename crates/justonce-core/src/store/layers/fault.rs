//! Makes a store fail on purpose: whether the step happened and whether that was reported are two
//! different things, and each combination breaks something else.

use std::fmt;
use std::sync::Arc;

use crate::claim::Fence;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::protocol::{Answer, ClaimEnd, Step};
use crate::record_id::RecordId;
use crate::store::{Health, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};

/// What to do to one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Happened, reported: nothing is done to the step.
    None,
    /// Did not happen, and the error says so.
    NotApplied,
    /// Did not happen, and the error does not know.
    LostRequest,
    /// Happened, and the error does not know.
    LostReply,
    /// Happened twice, reported once: a network repeated the request.
    Repeated,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 5] =
        [Self::None, Self::NotApplied, Self::LostRequest, Self::LostReply, Self::Repeated];
}

/// Chooses the fault for each step.
pub trait FaultPlan: Send + Sync + 'static {
    /// What to do to this step.
    fn fault(&self, step: &Step) -> Fault;
}

impl<F: Fn(&Step) -> Fault + Send + Sync + 'static> FaultPlan for F {
    fn fault(&self, step: &Step) -> Fault {
        self(step)
    }
}

/// A store that fails by plan.
///
/// ```
/// # use justonce_core::{Action, ManualClock, Step, memory::MemoryStore};
/// use justonce_core::store::{Fault, Faulty};
///
/// # let inner = MemoryStore::new(ManualClock::default());
/// let store = Faulty::new(inner, |step: &Step| match step.action {
///     Action::Complete(..) => Fault::LostReply,
///     _ => Fault::None,
/// });
/// ```
pub struct Faulty<S> {
    inner: S,
    plan: Arc<dyn FaultPlan>,
}

impl<S> Faulty<S> {
    /// Decorates a store.
    pub fn new(inner: S, plan: impl FaultPlan) -> Self {
        Self { inner, plan: Arc::new(plan) }
    }

    /// The store itself, to look at what really happened.
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: fmt::Debug> fmt::Debug for Faulty<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: Records> Records for Faulty<S> {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        let lost = || {
            Err(StoreError::maybe_applied(StoreErrorKind::Unavailable, "injected: no reply came"))
        };
        match self.plan.fault(step) {
            Fault::None => self.inner.apply(step).await,
            Fault::NotApplied => Err(StoreError::not_applied(
                StoreErrorKind::Unavailable,
                "injected: the store refused the connection",
            )),
            Fault::LostRequest => lost(),
            Fault::LostReply => {
                self.inner.apply(step).await?;
                lost()
            }
            Fault::Repeated => {
                self.inner.apply(step).await?;
                self.inner.apply(step).await
            }
        }
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.inner.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

impl<S: Maintenance> Maintenance for Faulty<S> {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.inner.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.inner.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.inner.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn health(&self) -> StoreResult<Health> {
        self.inner.health().await
    }
}
