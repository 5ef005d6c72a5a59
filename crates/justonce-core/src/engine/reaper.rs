//! Retention without a thought: sweeps the store in the background, in small portions.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::builder::Engine;
use crate::error::StoreResult;
use crate::store::SweepReport;

/// How the reaper works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaperSettings {
    /// The pause when there is nothing to do.
    pub every: Duration,
    /// The pause between two portions when there is.
    pub between: Duration,
    /// How many records one portion may change.
    pub portion: usize,
}

impl Default for ReaperSettings {
    fn default() -> Self {
        Self { every: Duration::from_secs(10), between: Duration::from_millis(5), portion: 1000 }
    }
}

/// A running reaper; it stops when this is dropped.
#[derive(Debug)]
pub struct Reaper(JoinHandle<()>);

impl Drop for Reaper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// Does what time demands to at most `limit` records: ends retentions, removes old
    /// tombstones, holds lapsed claims.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.inner.store.sweep(limit).await
    }

    /// Sweeps in the background until the returned value is dropped. Errors are left for the next
    /// round: retention is never urgent, and reads check it by themselves.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use = "the reaper stops when it is dropped"]
    pub fn start_reaper(&self, settings: ReaperSettings) -> Reaper {
        let engine = self.clone();
        Reaper(tokio::spawn(async move {
            loop {
                let more = engine.sweep(settings.portion).await.is_ok_and(|report| report.more);
                tokio::time::sleep(if more { settings.between } else { settings.every }).await;
            }
        }))
    }
}
