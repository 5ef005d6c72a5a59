//! Looking into, counting and cleaning an embedded store.

use std::sync::{Arc, PoisonError};

use justonce_core::store::{Health, ListQuery, Maintenance, Page, Stats, SweepReport};
use justonce_core::{StoreError, StoreErrorKind, StoreResult};

use crate::listing::list;
use crate::open::EmbeddedStore;
use crate::step::durable;
use crate::sweep::sweep;

impl Maintenance for EmbeddedStore {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        let (inner, query) = (Arc::clone(&self.0), query.clone());
        blocking(move || list(&inner.state, &query)).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let (mut stats, mut undone) = (Stats::default(), Stats::default());
        for shard in self.0.state.table.each() {
            stats.merge(&shard.done);
            undone.merge(&shard.undone);
            for row in shard.live.values().filter_map(|live| live.row.as_ref()) {
                stats.add(row.stored.entry.state_name(), u64::from(row.bytes));
            }
        }
        for (state, gone) in undone.by_state() {
            if let Some(left) = stats.of_mut(state) {
                left.count = left.count.saturating_sub(gone.count);
                left.bytes = left.bytes.saturating_sub(gone.bytes);
            }
        }
        Ok(stats)
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let inner = Arc::clone(&self.0);
        let (report, last) = blocking(move || {
            let mut from = inner.sweep_position.lock().unwrap_or_else(PoisonError::into_inner);
            sweep(&inner.stepper(), &mut from, limit)
        })
        .await?;
        if let Some(ticket) = last {
            durable(&ticket).await?;
        }
        Ok(report)
    }

    async fn ready(&self) -> StoreResult<()> {
        self.0.state.writable()
    }

    async fn health(&self) -> StoreResult<Health> {
        Ok(Health {
            damaged: self.0.state.damage.damaged(),
            warnings: self.0.warnings.clone(),
            bounds: self.0.state.bounded.used(),
        })
    }
}

/// Reads of many records run on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let message = format!("the work was not finished: {error}");
        Err(StoreError::maybe_applied(StoreErrorKind::Unavailable, message))
    })
}
