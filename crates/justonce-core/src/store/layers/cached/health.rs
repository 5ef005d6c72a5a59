//! Whether a cache is worth asking: after a failure it is skipped for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};

/// How long a cache is skipped after it failed: long enough that a dead one costs next to
/// nothing, short enough that one that came back is soon of use.
pub const CACHE_PAUSE: Duration = Duration::from_secs(1);

/// The mark of a cache that works.
const WORKS: u64 = 0;

/// When a cache that failed may be tried again.
#[derive(Debug, Default)]
pub(super) struct Health {
    again_at: AtomicU64,
}

impl Health {
    /// Whether the cache may be asked. Of all who come after the pause one tries for the others.
    pub(super) fn admits(&self, clock: &dyn Clock) -> bool {
        let again_at = self.again_at.load(Ordering::Relaxed);
        if again_at == WORKS {
            return true;
        }
        let now = clock.now();
        let next = paused_until(now);
        let relaxed = Ordering::Relaxed;
        now.as_millis() >= again_at
            && self.again_at.compare_exchange(again_at, next, relaxed, relaxed).is_ok()
    }

    /// Whether the last call succeeded.
    pub(super) fn works(&self) -> bool {
        self.again_at.load(Ordering::Relaxed) == WORKS
    }

    /// A call succeeded.
    pub(super) fn succeeded(&self) {
        // The common case writes nothing that other cores would have to hear of.
        if !self.works() {
            self.again_at.store(WORKS, Ordering::Relaxed);
        }
    }

    /// A call failed.
    pub(super) fn failed(&self, clock: &dyn Clock) {
        self.again_at.store(paused_until(clock.now()), Ordering::Relaxed);
    }
}

fn paused_until(now: Timestamp) -> u64 {
    now.after(CACHE_PAUSE).as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn after_a_failure_one_tries_for_all() {
        let (health, clock) = (Health::default(), ManualClock::default());
        assert!(health.admits(&clock) && health.admits(&clock));
        health.failed(&clock);
        assert!(!health.admits(&clock), "it has just failed");
        clock.advance(CACHE_PAUSE);
        assert!(health.admits(&clock), "the pause is over");
        assert!(!health.admits(&clock), "one call is trying");
        health.succeeded();
        assert!(health.admits(&clock) && health.admits(&clock));
    }

    #[test]
    fn a_try_that_is_never_heard_of_again_is_followed_by_another() {
        let (health, clock) = (Health::default(), ManualClock::default());
        health.failed(&clock);
        clock.advance(CACHE_PAUSE);
        assert!(health.admits(&clock));
        clock.advance(CACHE_PAUSE);
        assert!(health.admits(&clock) && !health.works());
    }
}
