//! The stores' clock: it goes with tokio's time, and jumps when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use justonce_core::{Clock, TimerClock, Timestamp};

/// What the clock shows when a run begins: late enough to jump back from.
const START: Timestamp = Timestamp::from_millis(1_000_000_000_000);

/// A clock that jumps. Clones show the same time.
#[derive(Clone, Debug)]
pub(crate) struct JumpingClock {
    time: TimerClock,
    ahead: Arc<AtomicI64>,
}

impl JumpingClock {
    pub(crate) fn new() -> Self {
        Self { time: TimerClock::starting_at(START), ahead: Arc::default() }
    }

    /// Jumps by so many milliseconds, also backwards.
    pub(crate) fn jump(&self, by: i64) {
        self.ahead.fetch_add(by, Ordering::Relaxed);
    }

    /// Milliseconds since the run began, as the clock counts them.
    pub(crate) fn shows(&self) -> i64 {
        let since = self.now().as_millis().cast_signed();
        since - START.as_millis().cast_signed()
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp::from_millis(self.time.now().as_millis().saturating_add_signed(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_clock_goes_with_the_timers_and_jumps() {
        let clock = JumpingClock::new();
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(clock.shows(), 5);
        clock.jump(-20);
        assert_eq!(clock.clone().shows(), -15);
    }
}
