//! The store that the processes of a run share.

use std::fmt::Debug;
use std::sync::Arc;

use justonce_core::memory::MemoryStore;
use justonce_core::store::SharedStore;

use crate::clock::JumpingClock;

/// A store at the other end of the networks.
pub(crate) trait Base: Debug + Send + Sync + 'static {
    /// The store; nothing while it is down.
    fn store(&self) -> Option<SharedStore>;

    /// The process has died, and the store with it if it lives in there.
    fn crash(&self) {}

    /// The process is started again.
    ///
    /// # Errors
    ///
    /// If the store cannot be opened.
    fn restart(&self) -> Result<(), String> {
        Ok(())
    }

    /// What is in the log is brought over to the storage engine.
    fn apply(&self) {}

    /// The next batch cannot be written.
    fn fail_next(&self) {}
}

/// A memory store outlives all processes.
#[derive(Debug)]
pub(crate) struct Memory(Arc<MemoryStore>);

impl Memory {
    pub(crate) fn new(clock: JumpingClock) -> Self {
        Self(Arc::new(MemoryStore::new(clock)))
    }
}

impl Base for Memory {
    fn store(&self) -> Option<SharedStore> {
        Some(Arc::<MemoryStore>::clone(&self.0))
    }
}
