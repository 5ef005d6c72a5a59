//! What a connection is doing, as its driver sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What a connection is doing. All parts of it are in one task: the atomics only make that task
/// movable between threads.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    // Requests whose answers are not finished.
    busy: AtomicUsize,
    // All requests so far.
    requests: AtomicU64,
    // Those of them that are finished.
    ended: AtomicU64,
    // The head of a request has begun and not ended.
    in_head: AtomicBool,
    // The client does not read what we write.
    blocked: AtomicBool,
    written: AtomicU64,
}

impl Gauge {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn set_in_head(&self, in_head: bool) {
        self.in_head.store(in_head, Ordering::Relaxed);
    }

    pub(super) fn is_in_head(&self) -> bool {
        self.in_head.load(Ordering::Relaxed)
    }

    pub(super) fn wrote(&self, anything: bool) {
        if anything {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        self.blocked.store(!anything, Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Changes whenever something happens that keeps a connection: a request begins or ends, or
    /// some of an answer is taken. What is written while nothing is asked, such as the PINGs of
    /// HTTP/2, does not count.
    pub(super) fn activity(&self) -> u64 {
        let written = if self.is_busy() { self.written.load(Ordering::Relaxed) } else { 0 };
        let ended = self.ended.load(Ordering::Relaxed);
        self.requests().wrapping_add(ended).wrapping_add(written)
    }
}

/// A request is under way.
#[derive(Debug)]
pub(super) struct Busy(Arc<Gauge>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}
