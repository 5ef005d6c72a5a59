//! Tells an observer about every store call: the hook for metrics and traces.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Health, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use crate::claim::Fence;
use crate::error::{StoreError, StoreResult};
use crate::record::RecordId;
use crate::step::{Answer, Step};

/// One store call, after it ended.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The name of the step or call.
    pub call: &'static str,
    /// The name of the answer, or the error.
    pub result: Result<&'static str, &'a StoreError>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Somebody who wants to know about store calls. Called on the hot path: be quick.
pub trait Observer: Send + Sync + 'static {
    /// A call ended.
    fn seen(&self, seen: Seen<'_>);
}

impl<F: Fn(Seen<'_>) + Send + Sync + 'static> Observer for F {
    fn seen(&self, seen: Seen<'_>) {
        self(seen);
    }
}

/// A store that tells an [`Observer`] about every call.
///
/// ```
/// # use justonce_core::{ManualClock, memory::MemoryStore};
/// use justonce_core::store::{Observed, Seen};
///
/// # let inner = MemoryStore::new(ManualClock::default());
/// let store = Observed::new(inner, |seen: Seen<'_>| println!("{} {:?}", seen.call, seen.result));
/// ```
pub struct Observed<S> {
    inner: S,
    observer: Arc<dyn Observer>,
}

impl<S> Observed<S> {
    /// Decorates a store.
    pub fn new(inner: S, observer: impl Observer) -> Self {
        Self { inner, observer: Arc::new(observer) }
    }

    async fn watch<T>(
        &self,
        call: &'static str,
        future: impl Future<Output = StoreResult<T>>,
        name: impl FnOnce(&T) -> &'static str,
    ) -> StoreResult<T> {
        let start = tokio::time::Instant::now();
        let result = future.await;
        let seen = Seen { call, result: result.as_ref().map(name), elapsed: start.elapsed() };
        self.observer.seen(seen);
        result
    }
}

impl<S: fmt::Debug> fmt::Debug for Observed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: Records> Records for Observed<S> {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.watch(step.action.name(), self.inner.apply(step), Answer::name).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let name = |found: &Option<Stored>| if found.is_some() { "found" } else { "absent" };
        self.watch("get", self.inner.get(id), name).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<()> {
        self.watch("settled", self.inner.settled(id, fence), |()| "settled").await
    }
}

impl<S: Maintenance> Maintenance for Observed<S> {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.watch("list", self.inner.list(query), |_| "page").await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.watch("stats", self.inner.stats(), |_| "stats").await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.watch("sweep_all", self.inner.sweep(limit), |_| "swept").await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.watch("ready", self.inner.ready(), |()| "ready").await
    }

    async fn health(&self) -> StoreResult<Health> {
        self.watch("health", self.inner.health(), |_| "health").await
    }
}
