//! What a connection is doing, as its driver sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What a connection is doing. All parts of it are in one task: the atomics only make that task
/// movable between threads.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    // Requests whose answers are not finished.
    busy: AtomicUsize,
    // Those of them whose answer waits for us, and not for the client to take more of it.
    ours: AtomicUsize,
    // All requests so far.
    requests: AtomicU64,
    // Those of them that are finished.
    ended: AtomicU64,
    // The head of a request has begun and not ended.
    in_head: AtomicBool,
    // The client does not read what we write.
    blocked: AtomicBool,
    // How often much was written: the client reads an answer.
    written: AtomicU64,
}

/// What is shorter may be a PING of HTTP/2, which says nothing about answers.
const MUCH: usize = 512;

impl Gauge {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut busy = Busy { gauge: Arc::clone(self), is_ours: false };
        busy.set_ours(true);
        busy
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Whether there is an answer that the client waits for. One that it does not take, because it
    /// opens no window for it, keeps no connection.
    pub(super) fn is_working(&self) -> bool {
        self.ours.load(Ordering::Relaxed) > 0
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

    /// So many bytes were written, or nothing could be.
    pub(super) fn wrote(&self, bytes: Option<usize>) {
        if bytes.is_some_and(|bytes| bytes >= MUCH) {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        self.blocked.store(bytes.is_none(), Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Changes whenever something happens that keeps a connection: a request begins or ends, or
    /// some of an answer is taken, also of one that was handed on whole long before. The PINGs of
    /// HTTP/2 do not count.
    pub(super) fn activity(&self) -> u64 {
        let written = self.written.load(Ordering::Relaxed);
        let ended = self.ended.load(Ordering::Relaxed);
        self.requests().wrapping_add(ended).wrapping_add(written)
    }
}

/// A request is under way.
#[derive(Debug)]
pub(super) struct Busy {
    gauge: Arc<Gauge>,
    is_ours: bool,
}

impl Busy {
    /// Whether its answer waits for us now.
    pub(super) fn set_ours(&mut self, is_ours: bool) {
        match (self.is_ours, is_ours) {
            (false, true) => self.gauge.ours.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.gauge.ours.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        self.is_ours = is_ours;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set_ours(false);
        self.gauge.busy.fetch_sub(1, Ordering::Relaxed);
        self.gauge.ended.fetch_add(1, Ordering::Relaxed);
    }
}
