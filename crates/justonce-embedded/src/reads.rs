//! Reads of single records from disk, on threads of their own while they are slow.
//!
//! Most reads find their blocks in memory, and most of those that find nothing are answered by a
//! filter: handing one to another thread costs more than the read itself. But one that waits for
//! the disk keeps every task of its thread waiting. So reads begin on other threads; after some
//! that were fast they are made where they are needed, until one is slow.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use justonce_core::store::PerRuntime;
use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// A read that takes longer waits for a disk, and not for memory.
const SLOW: Duration = Duration::from_micros(100);
/// So many fast reads in a row show that the disk is not needed.
const FAST_IN_A_ROW: u32 = 64;
/// The most reads on other threads of a runtime at once: each takes one.
const MAX_APART: usize = 16;

/// How reads are made now.
#[derive(Debug)]
pub(crate) struct Reads {
    /// How many were fast since the last slow one, up to a bound.
    fast: AtomicU32,
    /// The places of reads on other threads: each runtime has its own, so that one whose threads
    /// are all taken keeps no other waiting.
    places: PerRuntime<Semaphore>,
    /// Whether all are made on the caller's thread.
    #[cfg(feature = "simulation")]
    never_apart: std::sync::atomic::AtomicBool,
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            fast: AtomicU32::new(0),
            places: PerRuntime::new(),
            #[cfg(feature = "simulation")]
            never_apart: false.into(),
        }
    }
}

impl Reads {
    /// Whether a read may be made on the caller's thread.
    pub(crate) fn are_fast(&self) -> bool {
        #[cfg(feature = "simulation")]
        if self.never_apart.load(Ordering::Relaxed) {
            return true;
        }
        self.fast.load(Ordering::Relaxed) >= FAST_IN_A_ROW
    }

    /// From here on no read is made on another thread: a simulation has one thread, and its time
    /// stands still while another one works.
    #[cfg(feature = "simulation")]
    pub(crate) fn never_apart(&self) {
        self.never_apart.store(true, Ordering::Relaxed);
    }

    /// Makes a read on this thread, and learns from how long it took.
    pub(crate) fn timed<T>(&self, read: impl FnOnce() -> T) -> T {
        let start = now();
        let result = read();
        self.learn(start.elapsed());
        result
    }

    /// A read has taken so long.
    fn learn(&self, took: Duration) {
        if took > SLOW {
            self.fast.store(0, Ordering::Relaxed);
        } else if !self.are_fast() {
            self.fast.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes a read on another thread. One whose caller leaves ends in its place all the same.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let Ok(runtime) = Handle::try_current() else {
            // There are no tasks that could be kept waiting.
            return read();
        };
        // The semaphore is never closed.
        let places = self.places.get(|| Semaphore::new(MAX_APART));
        let place = places.acquire_owned().await.ok();
        let work = move || {
            let _place = place;
            read()
        };
        runtime.spawn_blocking(work).await.unwrap_or_else(|error| {
            let message = format!("the record was not read: {error}");
            Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "measures the disk; no rule depends on it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_were_fast_are_made_where_they_are_needed_until_one_is_slow() {
        let reads = Reads::default();
        assert!(!reads.are_fast(), "nothing is known of the disk");
        (1..FAST_IN_A_ROW).for_each(|_| reads.learn(SLOW));
        assert!(!reads.are_fast());
        reads.learn(SLOW);
        assert!(reads.are_fast());
        reads.learn(SLOW * 2);
        assert!(!reads.are_fast());
    }
}
