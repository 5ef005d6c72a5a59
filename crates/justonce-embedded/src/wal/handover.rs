//! Between the log, which has everything first, and the storage engine, which follows.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch::WalBatch;

/// How long batches are gathered before the engine gets them. Most claims end within this time, so
/// that the engine never sees them.
const LINGER: Duration = Duration::from_millis(20);
/// So many writes are enough.
const ENOUGH_WRITES: usize = 2048;

/// What the committing thread hands to the applier, and how far that one is.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    inner: Mutex<Inner>,
    /// Wakes the applier.
    work: Condvar,
    /// Wakes the log.
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    batches: Vec<WalBatch>,
    writes: usize,
    /// The applier sleeps and must be woken when so many writes are there.
    wake_at: Option<usize>,
    /// Up to this batch everything is durable in the storage engine.
    durable: u64,
    /// Up to this batch it should be.
    wanted: u64,
    closed: bool,
    failed: Option<Arc<str>>,
}

/// What the applier has to do next.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) batches: Vec<WalBatch>,
    /// Whether all that was applied must be made durable then.
    pub(crate) persist: bool,
}

impl Handover {
    /// Up to this batch everything is durable in the storage engine already.
    pub(crate) fn starting_at(durable: u64) -> Self {
        let handover = Self::default();
        handover.inner().durable = durable;
        handover
    }

    /// Hands a batch over that is durable in the log.
    pub(crate) fn hand_over(&self, batch: WalBatch) {
        let mut inner = self.inner();
        inner.writes += batch.writes.len();
        inner.batches.push(batch);
        if inner.wake_at.is_some_and(|enough| inner.writes >= enough) {
            inner.wake_at = None;
            drop(inner);
            self.work.notify_one();
        }
    }

    /// No more batches come.
    pub(crate) fn close(&self) {
        self.inner().closed = true;
        self.work.notify_one();
    }

    /// Everything up to a batch should become durable in the engine.
    pub(crate) fn want(&self, number: u64) {
        self.inner().wanted = number;
        self.work.notify_one();
    }

    /// The last batch that is durable in the engine.
    pub(crate) fn durable(&self) -> u64 {
        self.inner().durable
    }

    /// Everything up to a batch is durable in the engine.
    pub(crate) fn is_durable(&self, number: u64) {
        self.inner().durable = number;
        self.moved.notify_all();
    }

    /// The engine takes nothing any more.
    pub(crate) fn fail(&self, error: &str) {
        self.inner().failed = Some(Arc::from(error));
        self.moved.notify_all();
    }

    /// Waits until everything up to a batch is durable in the engine.
    ///
    /// # Errors
    ///
    /// If it never will be.
    pub(crate) fn wait_for(&self, number: u64) -> Result<(), Arc<str>> {
        let mut inner = self.inner();
        while inner.durable < number {
            if let Some(error) = &inner.failed {
                return Err(Arc::clone(error));
            }
            inner = self.moved.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// The next work, as soon as it is worth it; none when all is done and no more comes.
    pub(crate) fn next(&self) -> Option<Work> {
        let mut inner = self.inner();
        while inner.batches.is_empty() && !inner.must_persist() {
            if inner.closed {
                return None;
            }
            inner.wake_at = Some(0);
            inner = self.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let start = now();
        while inner.writes < ENOUGH_WRITES && !inner.closed && !inner.must_persist() {
            let Some(left) = LINGER.checked_sub(now().duration_since(start)) else { break };
            inner.wake_at = Some(ENOUGH_WRITES);
            let waited = self.work.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.wake_at = None;
        inner.writes = 0;
        let persist = inner.must_persist();
        let batches = std::mem::take(&mut inner.batches);
        Some(Work { batches, persist })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    const fn must_persist(&self) -> bool {
        self.wanted > self.durable
    }
}

#[expect(clippy::disallowed_methods, reason = "measures the gathering; no rule depends on it")]
fn now() -> Instant {
    Instant::now()
}
