//! A store in front of which something happens.

use std::pin::Pin;
use std::sync::Arc;

use justonce_core::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult};

use super::shared::Shared;

/// What happens before a step is taken.
pub(crate) type Before = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store that does something before each step: it may signal, wait, or never end.
#[derive(Clone)]
pub(crate) struct Hooked {
    inner: Shared,
    before: Arc<dyn Fn(&Step) -> Before + Send + Sync>,
}

impl Hooked {
    pub(crate) fn new(
        inner: Shared,
        before: impl Fn(&Step) -> Before + Send + Sync + 'static,
    ) -> Self {
        Self { inner, before: Arc::new(before) }
    }
}

impl Records for Hooked {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        (self.before)(step).await;
        self.inner.apply(step).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.inner.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

impl Maintenance for Hooked {
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
