//! A store that answers with any error a test wants.

use std::sync::Arc;

use justonce_core::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use justonce_core::{Action, Answer, ClaimEnd, Fence, RecordId, Step, StoreError, StoreResult};

use super::shared::Shared;

/// The error of a step, if it has one.
type Plan = dyn Fn(&Step) -> Option<StoreError> + Send + Sync;

/// A store whose steps fail by plan, without having been applied, whatever the error says.
#[derive(Clone)]
pub(crate) struct Erring {
    inner: Shared,
    plan: Arc<Plan>,
}

impl Erring {
    pub(crate) fn new(
        inner: Shared,
        plan: impl Fn(&Step) -> Option<StoreError> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, plan: Arc::new(plan) }
    }
}

impl Records for Erring {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        match (self.plan)(step) {
            Some(error) => Err(error),
            None => self.inner.apply(step).await,
        }
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.inner.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

impl Maintenance for Erring {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.inner.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.inner.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        // The plan is asked once for all of its steps.
        match (self.plan)(&Step::new(RecordId::from_bytes([0; 32]), Action::Sweep)) {
            Some(error) => Err(error),
            None => self.inner.sweep(limit).await,
        }
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }
}
