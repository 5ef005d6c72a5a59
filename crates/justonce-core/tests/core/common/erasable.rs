//! A store from which an operator can erase everything, and whose answers are slow to come back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use justonce_core::memory::MemoryStore;
use justonce_core::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult, TimerClock};

use super::handlers::Count;
use super::world::{START, pass};

/// A store behind a slow network that can be emptied. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct Erasable {
    clock: TimerClock,
    now: Arc<Mutex<Arc<MemoryStore>>>,
    back: Arc<Mutex<Duration>>,
    /// How many steps reached it.
    pub(crate) steps: Count,
}

impl Erasable {
    pub(crate) fn new() -> Self {
        let clock = TimerClock::starting_at(START);
        let now = Arc::new(Mutex::new(Arc::new(MemoryStore::new(clock))));
        Self { clock, now, back: Arc::default(), steps: Count::default() }
    }

    /// Erases every record, by a way that no decorator sees.
    pub(crate) fn erase(&self) {
        let fresh = Arc::new(MemoryStore::new(self.clock));
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    /// From now on answers take this long to come back.
    pub(crate) fn answers_take(&self, time: Duration) {
        *self.back.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    fn store(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Records for Erasable {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.steps.add();
        let back = *self.back.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.store().apply(step).await;
        pass(back).await;
        answer
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.store().get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.store().settled(id, fence).await
    }
}

impl Maintenance for Erasable {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.store().list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.store().stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.store().sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.store().ready().await
    }
}
