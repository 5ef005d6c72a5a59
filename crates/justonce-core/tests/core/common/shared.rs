//! One memory store under several decorators at once.

use std::sync::Arc;

use justonce_core::memory::MemoryStore;
use justonce_core::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult};

/// A handle on a memory store. Clones are the same store, so that two engines can meet in it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Arc<MemoryStore>);

impl Records for Shared {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.0.apply(step).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.0.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.0.settled(id, fence).await
    }
}

impl Maintenance for Shared {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.0.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.0.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.0.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.0.ready().await
    }
}
