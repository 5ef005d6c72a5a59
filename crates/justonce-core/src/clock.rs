//! Time as the store sees it. The core never reads the machine's clock: the code that builds a
//! store hands one in.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment on a store's clock, in milliseconds since the Unix epoch.
///
/// Arithmetic saturates: no duration, however hostile, can make a timestamp wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The beginning of time.
    pub const ZERO: Self = Self(0);
    /// The end of time: nothing that ends here ever ends.
    pub const MAX: Self = Self(u64::MAX);

    /// A moment given in milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This moment plus a duration; sub-millisecond parts round up, so that a lease is never
    /// shorter than asked for.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis_up(duration)))
    }

    /// How long from `earlier` to this moment; zero if it lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Whole milliseconds of a duration, rounded up and saturating.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl From<SystemTime> for Timestamp {
    /// Moments before 1970 become [`Timestamp::ZERO`].
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Where a store takes its time from.
///
/// Any `Fn() -> Timestamp` is a clock:
///
/// ```
/// use justonce_core::{Clock, Timestamp};
/// use std::time::SystemTime;
///
/// # #[expect(clippy::disallowed_methods, reason = "the example shows how to inject it")]
/// let clock = || Timestamp::from(SystemTime::now());
/// assert!(clock.now() > Timestamp::ZERO);
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

impl<F> Clock for F
where
    F: Fn() -> Timestamp + Send + Sync + 'static,
{
    fn now(&self) -> Timestamp {
        self()
    }
}

/// A clock that moves only by calls, for tests. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(start.as_millis())))
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis_up(by), Ordering::SeqCst);
    }

    /// Sets the time, also back: clocks of machines are corrected.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A clock driven by tokio's timers. With tokio's time paused it stands still and moves in step
/// with every timer, so that leases, back-off and waits can be tested without waiting.
#[derive(Clone, Copy, Debug)]
pub struct TimerClock {
    base: Timestamp,
    start: tokio::time::Instant,
}

impl TimerClock {
    /// A clock that shows `base` now.
    #[must_use]
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, start: tokio::time::Instant::now() }
    }
}

impl Clock for TimerClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.start.elapsed().as_millis();
        Timestamp(self.base.0.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_and_rounds_up() {
        assert_eq!(Timestamp::MAX.after(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.after(Duration::from_nanos(1)), Timestamp::from_millis(1));
        assert_eq!(Timestamp::ZERO.after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.since(Timestamp::MAX), Duration::ZERO);
    }

    #[test]
    fn a_manual_clock_is_shared_by_its_clones() {
        let clock = ManualClock::starting_at(Timestamp::from_millis(5));
        let other = clock.clone();
        other.advance(Duration::from_millis(7));
        assert_eq!(clock.now(), Timestamp::from_millis(12));
        clock.set(Timestamp::from_millis(1));
        assert_eq!(clock.now(), Timestamp::from_millis(1));
    }
}
