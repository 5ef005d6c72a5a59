//! The open connections of a listener: their number, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::abort::Abort;

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const ABORTED: u8 = 2;

/// What connections must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Serve requests.
    Running,
    /// Finish the requests under way.
    Draining,
    /// End now.
    Aborted,
}

/// The most connections that can be counted.
const MAX_CONNECTIONS: u32 = u32::MAX >> 3;

/// The open connections of one listener.
#[derive(Debug)]
pub(super) struct ConnectionTracker {
    stage: AtomicU8,
    /// Notified when the stage changes.
    pub(super) changed: Notify,
    max: u32,
    /// One permit for each connection that may still be opened.
    free: Arc<Semaphore>,
    /// The end of what is no HTTP connection any more.
    pub(super) aborted: Abort,
}

/// Counts a connection as open until it is dropped.
pub(super) type ConnectionGuard = OwnedSemaphorePermit;

impl ConnectionTracker {
    pub(super) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(MAX_CONNECTIONS).min(MAX_CONNECTIONS);
        let (stage, changed) = (AtomicU8::new(RUNNING), Notify::new());
        let free = Arc::new(Semaphore::new(max as usize));
        Self { stage, changed, max, free, aborted: Abort::default() }
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            RUNNING => Stage::Running,
            DRAINING => Stage::Draining,
            _ => Stage::Aborted,
        }
    }

    pub(super) fn drain(&self) {
        self.set(DRAINING);
    }

    pub(super) fn abort(&self) {
        self.set(ABORTED);
        self.aborted.abort();
    }

    fn set(&self, stage: u8) {
        self.stage.store(stage, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Counts one more connection, unless too many are open.
    pub(super) fn open(&self) -> Option<ConnectionGuard> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    pub(super) fn count(&self) -> usize {
        self.max as usize - self.free.available_permits()
    }

    /// Waits until no connection is open. None may be opened from now on.
    pub(super) async fn closed(&self) {
        // It fails only for a closed semaphore, and this one is never closed.
        let _ = self.free.acquire_many(self.max).await;
    }
}
