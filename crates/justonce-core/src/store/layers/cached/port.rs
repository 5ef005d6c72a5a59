//! The port: what a cache of outcomes must be able to do.

use std::future::Future;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::{StoreError, StoreResult};
use crate::fingerprint::Fingerprint;
use crate::outcome::Outcome;
use crate::protocol::{Answer, Existing, Replay};
use crate::record_id::RecordId;

/// A cache of the outcomes of settled operations.
///
/// It may forget anything at any time. It must not give anything after the time that
/// [`OutcomeCache::put`] says, nor put what was forgotten since the [`PutPermit`] was given.
/// A call's future may be dropped at any time.
pub trait OutcomeCache: Send + Sync + 'static {
    /// Looks for the outcome that was put for this very fingerprint.
    ///
    /// # Errors
    ///
    /// If the cache cannot be read. It is then skipped for a while.
    fn get(
        &self,
        id: &RecordId,
        asked: &Fingerprint,
    ) -> impl Future<Output = StoreResult<Lookup>> + Send;

    /// Keeps an outcome until the smaller of what is left of it and the cache's own age is over,
    /// both counted from [`PutPermit::at`], however late the call arrives. Does nothing if the
    /// record was forgotten after the permit was given.
    ///
    /// # Errors
    ///
    /// If the cache cannot be written. It is then skipped for a while.
    fn put(
        &self,
        id: &RecordId,
        kept: &CachedOutcome,
        permit: PutPermit,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Forgets what is kept of a record, and refuses what is put with a permit from before.
    ///
    /// # Errors
    ///
    /// If the cache cannot be written.
    fn forget(&self, id: &RecordId) -> impl Future<Output = StoreResult<()>> + Send;
}

/// What a cache keeps of a settled operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedOutcome {
    /// A fingerprint that agrees with that of the record. It need not be the record's own, so it
    /// says nothing about any other fingerprint.
    pub fingerprint: Fingerprint,
    /// The outcome.
    pub outcome: Outcome,
    /// Whether the operation failed for good.
    pub failed: bool,
    /// What is left of the retention.
    pub left: Duration,
}

/// What a look into a cache found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// An outcome for the fingerprint that was asked.
    Found(CachedOutcome),
    /// Something for another fingerprint.
    Other(PutPermit),
    /// Nothing.
    Nothing(PutPermit),
}

/// The right to put an outcome that the store answers after the cache was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutPermit {
    /// A moment on the cache's clock, before the store was asked.
    pub at: Timestamp,
    /// The cache's mark for finding out whether the record was forgotten since.
    pub turn: u64,
}

impl CachedOutcome {
    /// What the rules answer to a begin or a peek with this fingerprint.
    #[must_use]
    pub fn answer(self) -> Answer {
        let replay = Replay { outcome: self.outcome, left: self.left };
        Answer::Existing(match self.failed {
            true => Existing::Failed(replay),
            false => Existing::Completed(replay),
        })
    }

    /// What to keep of an answer to this fingerprint; nothing unless the operation is settled.
    #[must_use]
    pub fn of(fingerprint: Fingerprint, answer: &Answer) -> Option<Self> {
        let (replay, failed) = match answer {
            Answer::Existing(Existing::Completed(replay)) => (replay, false),
            Answer::Existing(Existing::Failed(replay)) => (replay, true),
            _ => return None,
        };
        Some(Self { fingerprint, outcome: replay.outcome.clone(), failed, left: replay.left })
    }
}

impl PutPermit {
    /// The same right for something that the store was asked this much later.
    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        Self { at: self.at.after(by), ..self }
    }
}

/// What a cache did, for metrics and traces.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CacheEvent<'a> {
    /// It answered.
    Hit,
    /// It had nothing, and the store was asked.
    Missed,
    /// It was skipped because it had failed shortly before.
    Skipped,
    /// It failed, or did not answer in time.
    Failed(&'a StoreError),
}

/// Observes a cache. Called on the hot path: be quick.
pub trait CacheObserver: Send + Sync + 'static {
    /// Something happened.
    fn seen(&self, event: CacheEvent<'_>);
}

impl<F: Fn(CacheEvent<'_>) + Send + Sync + 'static> CacheObserver for F {
    fn seen(&self, event: CacheEvent<'_>) {
        self(event);
    }
}
