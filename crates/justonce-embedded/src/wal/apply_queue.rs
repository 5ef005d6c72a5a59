//! The queue between the log and the storage engine, which follows it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::batch::WalBatch;

/// So many writes are brought over also if the log's file is not full: until then their records are
/// in memory.
const MANY_WRITES: usize = 65_536;

/// The batches that the writer passes to the applier, and the applier's progress.
#[derive(Debug, Default)]
pub(crate) struct ApplyQueue {
    inner: Mutex<Inner>,
    /// Wakes the applier.
    work: Condvar,
    /// Wakes the log.
    moved: Condvar,
    /// Held while a batch is applied, and while nothing must be.
    gate: Mutex<()>,
}

#[derive(Debug, Default)]
struct Inner {
    batches: Vec<WalBatch>,
    writes: usize,
    /// Up to this batch everything is durable in the storage engine.
    durable: u64,
    /// Up to this batch it should be.
    wanted: u64,
    /// The last batch that the applier has taken.
    applying: u64,
    closed: bool,
    failed: Option<Arc<str>>,
}

impl ApplyQueue {
    /// Up to this batch everything is durable in the storage engine already.
    pub(crate) fn starting_at(durable: u64) -> Self {
        let apply_queue = Self::default();
        apply_queue.inner().durable = durable;
        apply_queue
    }

    /// Adds a batch that is durable in the log.
    pub(crate) fn push(&self, batch: WalBatch) {
        let mut inner = self.inner();
        inner.writes += batch.writes.len();
        if inner.writes >= MANY_WRITES {
            inner.wanted = batch.number;
            self.work.notify_one();
        }
        inner.batches.push(batch);
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

    /// Waits until everything that was handed over is durable in the engine.
    ///
    /// # Errors
    ///
    /// If it never will be.
    pub(crate) fn flush(&self) -> Result<(), Arc<str>> {
        let last = {
            let mut inner = self.inner();
            let last = inner.batches.last().map_or(inner.applying, |batch| batch.number);
            inner.wanted = inner.wanted.max(last);
            last
        };
        self.work.notify_one();
        self.wait_for(last)
    }

    /// While this is held, nothing is applied: the applier takes it for each of its batches.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// All that was handed over, once it is wanted or the last; nothing when no more comes.
    pub(crate) fn next(&self) -> Option<Vec<WalBatch>> {
        let mut inner = self.inner();
        while !inner.closed && (inner.wanted <= inner.durable || inner.batches.is_empty()) {
            inner = self.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.writes = 0;
        let batches = std::mem::take(&mut inner.batches);
        inner.applying = batches.last().map_or(inner.applying, |batch| batch.number);
        (!batches.is_empty()).then_some(batches)
    }

    /// All that was handed over by now.
    #[cfg(feature = "simulation")]
    pub(crate) fn take_now(&self) -> Vec<WalBatch> {
        let mut inner = self.inner();
        inner.writes = 0;
        std::mem::take(&mut inner.batches)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
