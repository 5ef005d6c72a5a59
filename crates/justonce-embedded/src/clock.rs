//! The machine's clock, safe for leases.

use std::time::{Instant, SystemTime};

use justonce_core::{Clock, Timestamp};

/// The wall clock at the start, carried on by the monotonic clock: steps of the wall clock while
/// the process runs neither lapse leases early nor stretch them.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    base: Timestamp,
    start: Instant,
}

impl SystemClock {
    /// Reads the wall clock, this once.
    #[must_use]
    pub fn new() -> Self {
        Self::not_before(Timestamp::ZERO)
    }

    /// The same, but never showing less than `floor`: a wall clock that was set back while the
    /// process was down must not bring time back for the records.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
    pub fn not_before(floor: Timestamp) -> Self {
        let base = Timestamp::from(SystemTime::now()).max(floor);
        Self { base, start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.base.as_millis().saturating_add(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_holds() {
        let floor = Timestamp::from_millis(u64::MAX / 2);
        assert!(SystemClock::not_before(floor).now() >= floor);
        assert!(SystemClock::new().now() < floor);
    }
}
