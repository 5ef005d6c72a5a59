//! The open connections of a listener: their number, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::settings::FIRST_BYTES;
use crate::abort::Abort;

const RUNNING: u8 = 0;
const LEAVING: u8 = 1;
const DRAINING: u8 = 2;
const ABORTED: u8 = 3;

/// What connections must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Serve requests.
    Running,
    /// The same, and close with the next response.
    Leaving,
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
    /// Connections that may still bring a request: those from before the listener was last told to
    /// leave, and those since, in turn.
    askers: [AtomicUsize; 2],
    /// How often it was told to leave.
    departures: AtomicUsize,
    pub(super) totals: Totals,
}

/// What became of connections so far, and what those that are open speak.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) accepted: AtomicU64,
    pub(super) over_limit: AtomicU64,
    pub(super) bad_source: AtomicU64,
    pub(super) http1: Spoken,
    pub(super) http2: Spoken,
}

/// The connections that speak one protocol.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    pub(super) all: AtomicU64,
    pub(super) open: AtomicUsize,
}

/// Counts a connection as open until it is dropped.
pub(super) type ConnectionGuard = OwnedSemaphorePermit;

/// Counts a connection that may still bring a request, until it is dropped.
#[derive(Debug)]
pub(super) struct Asker {
    tracker: Arc<ConnectionTracker>,
    departures: usize,
}

/// Counts a connection by its protocol, until it is dropped.
pub(super) struct Speaker<'t>(&'t Spoken);

impl ConnectionTracker {
    pub(super) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(MAX_CONNECTIONS).min(MAX_CONNECTIONS);
        Self {
            stage: AtomicU8::new(RUNNING),
            changed: Notify::new(),
            max,
            free: Arc::new(Semaphore::new(max as usize)),
            aborted: Abort::default(),
            askers: Default::default(),
            departures: AtomicUsize::new(0),
            totals: Totals::default(),
        }
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            RUNNING => Stage::Running,
            LEAVING => Stage::Leaving,
            DRAINING => Stage::Draining,
            _ => Stage::Aborted,
        }
    }

    /// From here on, HTTP/1 connections close with their next response.
    pub(super) fn leave(&self) {
        self.departures.fetch_add(1, Ordering::AcqRel);
        self.set(LEAVING);
    }

    pub(super) fn resume(&self) {
        self.set(RUNNING);
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

    pub(super) const fn max(&self) -> usize {
        self.max as usize
    }

    pub(super) fn count(&self) -> usize {
        self.max as usize - self.free.available_permits()
    }

    /// Waits until no connection is open. None may be opened from now on.
    pub(super) async fn closed(&self) {
        // It fails only for a closed semaphore, and this one is never closed.
        let _ = self.free.acquire_many(self.max).await;
    }

    /// Waits for what comes first on a new connection, as long as that may be served: when the
    /// listener ends, it has a moment to come.
    pub(super) async fn unless_too_late<F: Future>(&self, first: F) -> Option<F::Output> {
        let until = Instant::now() + FIRST_BYTES;
        tokio::select! {
            biased;
            first = first => Some(first),
            () = self.too_late(until) => None,
        }
    }

    async fn too_late(&self, until: Instant) {
        let is_ending = |stage| matches!(stage, Stage::Draining | Stage::Aborted);
        loop {
            self.reached(is_ending).await;
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.reached(|stage| stage == Stage::Aborted) => {}
            }
            if is_ending(self.stage()) {
                return;
            }
        }
    }

    async fn reached(&self, wanted: impl Fn(Stage) -> bool) {
        loop {
            // It hears of changes from here on, polled or not.
            let changed = self.changed.notified();
            if wanted(self.stage()) {
                return;
            }
            changed.await;
        }
    }

    /// A connection that may bring requests.
    pub(super) fn asker(self: &Arc<Self>) -> Asker {
        let departures = self.departures.load(Ordering::Acquire);
        self.askers_of(departures).fetch_add(1, Ordering::AcqRel);
        Asker { tracker: Arc::clone(self), departures }
    }

    /// How many connections may still bring a request, and how many of them were there before the
    /// listener was last told to leave.
    pub(super) fn askers(&self) -> (usize, usize) {
        let now = self.departures.load(Ordering::Acquire);
        let before = self.askers_of(now.wrapping_add(1)).load(Ordering::Acquire);
        (before + self.askers_of(now).load(Ordering::Acquire), before)
    }

    fn askers_of(&self, departures: usize) -> &AtomicUsize {
        let [even, odd] = &self.askers;
        if departures.is_multiple_of(2) { even } else { odd }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.tracker.askers_of(self.departures).fetch_sub(1, Ordering::AcqRel);
    }
}

impl Spoken {
    pub(super) fn begin(&self) -> Speaker<'_> {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Speaker(self)
    }
}

impl Drop for Speaker<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_from_before_a_departure_are_told_apart() {
        let tracker = Arc::new(ConnectionTracker::new(10));
        let (first, second) = (tracker.asker(), tracker.asker());
        assert_eq!(tracker.askers(), (2, 0));
        tracker.leave();
        let third = tracker.asker();
        assert_eq!(tracker.askers(), (3, 2));
        drop(first);
        assert_eq!(tracker.askers(), (2, 1));
        tracker.resume();
        drop(second);
        tracker.leave();
        assert_eq!((tracker.stage(), tracker.askers()), (Stage::Leaving, (1, 1)));
        drop(third);
        assert_eq!(tracker.askers(), (0, 0));
    }
}
