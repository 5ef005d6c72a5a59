//! How connections are counted, and told that it is time to go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::Notify;

const RUNNING: u8 = 0;
const FINISHING: u8 = 1;
const GONE: u8 = 2;

/// What connections are asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Running,
    /// Finish what is under way.
    Finishing,
    /// End now.
    Gone,
}

/// The connections of one listener.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    stage: AtomicU8,
    open: AtomicUsize,
    /// Rings when the stage changes.
    pub(super) bell: Notify,
    left: Notify,
}

impl Crowd {
    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            RUNNING => Stage::Running,
            FINISHING => Stage::Finishing,
            _ => Stage::Gone,
        }
    }

    pub(super) fn finish(&self) {
        self.go_on_to(FINISHING);
    }

    pub(super) fn end(&self) {
        self.go_on_to(GONE);
    }

    fn go_on_to(&self, stage: u8) {
        self.stage.store(stage, Ordering::Release);
        self.bell.notify_waiters();
    }

    /// Room for one more connection, if there is any.
    pub(super) fn enter(self: &Arc<Self>, max: usize) -> Option<Permit> {
        let permit = Permit(Arc::clone(self));
        (self.open.fetch_add(1, Ordering::AcqRel) < max).then_some(permit)
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Until the last one has left.
    pub(super) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.open() == 0 {
                return;
            }
            left.await;
        }
    }
}

/// One connection is there.
#[derive(Debug)]
pub(super) struct Permit(Arc<Crowd>);

impl Drop for Permit {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.left.notify_one();
        }
    }
}
