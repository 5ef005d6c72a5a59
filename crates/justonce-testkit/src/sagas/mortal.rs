//! A store as a process sees it that can die.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use justonce_core::store::{
    ListQuery, Maintenance, Page, Records, SharedStore, Stats, Stored, SweepReport,
};
use justonce_core::{
    Answer, ClaimEnd, Fence, RecordId, Step, StoreError, StoreErrorKind, StoreResult,
};

/// A store as a process sees it that can die: after that, nothing of it reaches the store, neither
/// a renewal nor an abandon.
pub struct Mortal {
    store: SharedStore,
    alive: Arc<AtomicBool>,
}

impl Mortal {
    /// The store, for as long as the process lives.
    #[must_use]
    pub fn new(store: SharedStore, alive: Arc<AtomicBool>) -> Self {
        Self { store, alive }
    }

    fn living(&self) -> StoreResult<&SharedStore> {
        if self.alive.load(Ordering::Acquire) {
            return Ok(&self.store);
        }
        Err(StoreError::not_applied(StoreErrorKind::Stopped, "the process is dead"))
    }
}

impl Records for Mortal {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.living()?.apply(step).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.living()?.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.living()?.settled(id, fence).await
    }
}

impl Maintenance for Mortal {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.living()?.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.living()?.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.living()?.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.living()?.ready().await
    }
}

impl fmt::Debug for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mortal").field("alive", &self.alive).finish_non_exhaustive()
    }
}
