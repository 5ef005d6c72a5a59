//! Ends retentions in the background, in small portions.

use std::time::Duration;

use super::builder::Engine;
use crate::error::{StoreError, StoreResult};
use crate::store::SweepReport;
use crate::worker::{Next, Rounds, Worker};

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

    /// Sweeps in the background until the returned worker is stopped or dropped. Errors are left
    /// for the next round: retention is never urgent, and reads check it by themselves.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start_reaper(&self, settings: ReaperSettings) -> Worker {
        self.start_observed_reaper(settings, |_| {})
    }

    /// As [`Engine::start_reaper`]; each sweep is handed to `observe`, to count or log it.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start_observed_reaper(
        &self,
        settings: ReaperSettings,
        observe: impl Fn(&StoreResult<SweepReport>) + Send + 'static,
    ) -> Worker {
        let ReaperSettings { every, between, portion } = settings;
        let schedule = self.schedule("reaper", every).between(between);
        Worker::start(schedule, Sweeps { engine: self.clone(), portion, observe })
    }
}

/// One portion a round.
struct Sweeps<F> {
    engine: Engine,
    portion: usize,
    observe: F,
}

impl<F: Fn(&StoreResult<SweepReport>) + Send + 'static> Rounds for Sweeps<F> {
    type Error = StoreError;

    async fn round(&mut self) -> StoreResult<Next> {
        let swept = self.engine.sweep(self.portion).await;
        (self.observe)(&swept);
        Ok(if swept?.more { Next::More } else { Next::Pause })
    }
}
