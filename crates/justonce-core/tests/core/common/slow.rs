//! A store that takes its time.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult};

use super::shared::Shared;
use super::world::pass;

/// How long a step is under way to the store and back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lag {
    /// Before it is applied.
    pub(crate) there: Duration,
    /// After it was applied.
    pub(crate) back: Duration,
}

/// A store behind a slow network; reads are slow on their way back only.
#[derive(Clone)]
pub(crate) struct Slow {
    inner: Shared,
    lag: Arc<dyn Fn(&Step) -> Lag + Send + Sync>,
}

impl Slow {
    pub(crate) fn new(inner: Shared, lag: impl Fn(&Step) -> Lag + Send + Sync + 'static) -> Self {
        Self { inner, lag: Arc::new(lag) }
    }
}

impl Records for Slow {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        let lag = (self.lag)(step);
        pass(lag.there).await;
        let answer = self.inner.apply(step).await;
        pass(lag.back).await;
        answer
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let found = self.inner.get(id).await;
        let step = Step::new(*id, justonce_core::Action::Sweep);
        pass((self.lag)(&step).back).await;
        found
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

impl Maintenance for Slow {
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
}
