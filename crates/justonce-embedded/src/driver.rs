//! A store without threads: a simulation takes their steps, one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::applier::Applier;
use crate::commit::{GroupCommit, Sink, WriterThread};
use crate::error::OpenError;
use crate::open::{EmbeddedBuilder, EmbeddedStore, Inner, Prepared, Threads};
use crate::write::Write;
use crate::writer::Writer;

/// Takes the steps of the threads of one store. **For simulations only:** nothing is durable, and
/// no caller is answered, before a step says so. Dropped together with its store it leaves the
/// directory as a crash would.
pub struct Driver {
    writer: WriterThread<Write, Disk>,
    applier: Applier,
    fails: Arc<AtomicBool>,
}

/// A writer whose disk fails when it is told to.
struct Disk {
    writer: Writer,
    fails: Arc<AtomicBool>,
}

impl EmbeddedBuilder {
    /// Every how many batches a row of the engine's log names all that is unsettled. **For
    /// simulations only:** it lets few batches reach what thousands reach otherwise.
    pub fn name_all_every(mut self, batches: u64) -> Self {
        self.name_all_every = batches.max(1);
        self
    }

    /// Opens the store without threads. **For simulations only.**
    ///
    /// # Errors
    ///
    /// As [`EmbeddedBuilder::open`].
    pub fn open_driven(mut self) -> Result<(EmbeddedStore, Driver), OpenError> {
        self.workers = false;
        let Prepared { writer, applier, warnings, directory, lock } = self.prepare()?;
        let state = Arc::clone(&applier.state);
        state.reads.never_apart();
        let fails = Arc::<AtomicBool>::default();
        let (commits, writer) = GroupCommit::driven(Disk { writer, fails: Arc::clone(&fails) });
        let threads =
            Threads { commits, apply_queue: Arc::clone(&applier.apply_queue), applier: None };
        let inner = Inner::new(state, threads, warnings, directory, lock);
        Ok((EmbeddedStore(Arc::new(inner)), Driver { writer, applier, fails }))
    }
}

impl Driver {
    /// Writes what is queued as one batch, and answers who waits for it. Whether there was
    /// anything, and it could be written.
    pub fn commit(&mut self) -> bool {
        self.writer.write_queued()
    }

    /// Brings what was written over to the storage engine.
    pub fn apply(&mut self) {
        self.applier.apply_queued();
    }

    /// From here on nothing can be written: nothing of the next batch reaches the disk.
    pub fn fail(&self) {
        self.fails.store(true, Ordering::Relaxed);
    }
}

impl Sink<Write> for Disk {
    fn commit(&mut self, batch: &mut Vec<Write>) -> Result<(), String> {
        if self.fails.load(Ordering::Relaxed) {
            let why = "the simulated disk fails";
            self.writer.state.stop(why);
            return Err(why.to_owned());
        }
        self.writer.commit(batch)
    }

    fn committed(&mut self, batch: Vec<Write>) {
        self.writer.committed(batch);
    }

    fn panicked(&mut self, why: &str) {
        self.writer.panicked(why);
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
