//! Bounds how long a store call may take.

use std::time::Duration;

use crate::claim::Fence;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::protocol::{Answer, ClaimEnd, Step};
use crate::record_id::RecordId;
use crate::store::{Health, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};

/// A store whose calls end after a limit with [`StoreErrorKind::TimedOut`]. A step that was cut
/// off may have been applied; a read was not.
///
/// ```
/// # use justonce_core::{ManualClock, memory::MemoryStore, store::Timeout};
/// # use std::time::Duration;
/// let store = Timeout::new(MemoryStore::new(ManualClock::default()), Duration::from_secs(2));
/// ```
#[derive(Debug)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
}

impl<S> Timeout<S> {
    /// Bounds every call but the wait of [`Records::settled`], which the caller bounds.
    #[must_use]
    pub const fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit }
    }

    async fn within<T>(
        &self,
        call: impl Future<Output = StoreResult<T>>,
        late: impl FnOnce(StoreErrorKind, String) -> StoreError,
    ) -> StoreResult<T> {
        match tokio::time::timeout(self.limit, call).await {
            Ok(result) => result,
            Err(_) => {
                let message = format!("the store did not answer within {:?}", self.limit);
                Err(late(StoreErrorKind::TimedOut, message))
            }
        }
    }
}

impl<S: Records> Records for Timeout<S> {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.within(self.inner.apply(step), StoreError::maybe_applied).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.within(self.inner.get(id), StoreError::not_applied).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

impl<S: Maintenance> Maintenance for Timeout<S> {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.within(self.inner.list(query), StoreError::not_applied).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.within(self.inner.stats(), StoreError::not_applied).await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.within(self.inner.sweep(limit), StoreError::maybe_applied).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.within(self.inner.ready(), StoreError::not_applied).await
    }

    async fn health(&self) -> StoreResult<Health> {
        self.within(self.inner.health(), StoreError::not_applied).await
    }
}
