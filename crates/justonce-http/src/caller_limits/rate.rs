//! A token bucket, as pure functions on the time at which it is full again.

use std::time::Duration;

/// How many operations a caller may begin in which time: a token bucket.
///
/// ```
/// use std::time::Duration;
///
/// use justonce_http::Rate;
///
/// // The default burst: as many at once as in the whole time.
/// let rate = Rate::new(100, Duration::from_secs(60));
/// // Customised: one every 600 ms, and at most 5 at once.
/// let smooth = Rate::new(100, Duration::from_secs(60)).burst(5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    operations: u32,
    per: Duration,
    burst: u32,
}

impl Rate {
    /// So many operations in this time; at least one, in at least a microsecond for each.
    #[must_use]
    pub fn new(operations: u32, per: Duration) -> Self {
        let operations = operations.max(1);
        let per = per.max(Duration::from_micros(operations.into()));
        Self { operations, per, burst: operations }
    }

    /// Sets how many may be begun at once, after a pause. Default: as many as in the whole time.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        Self { burst: burst.max(1), ..self }
    }

    /// How many operations may be begun.
    #[must_use]
    pub const fn operations(&self) -> u32 {
        self.operations
    }

    /// In which time.
    #[must_use]
    pub const fn per(&self) -> Duration {
        self.per
    }

    /// How many at once.
    #[must_use]
    pub const fn max_burst(&self) -> u32 {
        self.burst
    }

    /// The time in which one token comes back.
    fn interval(&self) -> Duration {
        self.per / self.operations
    }

    /// The time in which an empty bucket is full again.
    fn filling(&self) -> Duration {
        self.interval().saturating_mul(self.burst)
    }

    /// Takes a token from a bucket that is full again at some time: that time afterwards.
    ///
    /// # Errors
    ///
    /// How long it takes until there is a token.
    pub(super) fn take(&self, full_at: Duration, now: Duration) -> Result<Duration, Duration> {
        let after = self.force(full_at, now);
        match after.checked_sub(now.saturating_add(self.filling())) {
            None | Some(Duration::ZERO) => Ok(after),
            Some(wait) => Err(wait),
        }
    }

    /// The same without regard to what is there.
    pub(super) fn force(&self, full_at: Duration, now: Duration) -> Duration {
        full_at.max(now).saturating_add(self.interval())
    }

    /// Puts a token back.
    pub(super) fn put_back(&self, full_at: Duration) -> Duration {
        full_at.saturating_sub(self.interval())
    }

    /// When a bucket is full again whose rate was another one until now: what was used counts, at
    /// the new pace, and no more than empties the bucket.
    pub(super) fn instead_of(&self, before: &Self, full_at: Duration, now: Duration) -> Duration {
        let missing = full_at.saturating_sub(now).as_nanos();
        let (old, new) = (before.interval().as_nanos().max(1), self.interval().as_nanos());
        let missing = match missing.checked_mul(new) {
            Some(product) => u64::try_from(product / old).unwrap_or(u64::MAX),
            None => u64::MAX,
        };
        now.saturating_add(Duration::from_nanos(missing).min(self.filling()))
    }

    /// How much of the bucket is used, in thousandths.
    pub(super) fn used(&self, full_at: Duration, now: Duration) -> u64 {
        let missing = full_at.saturating_sub(now).as_nanos().saturating_mul(1000);
        u64::try_from(missing / self.filling().as_nanos().max(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let rate = Rate::new(10, SECOND).burst(3);
        let mut full_at = Duration::ZERO;
        for _ in 0..3 {
            full_at = rate.take(full_at, SECOND).unwrap();
        }
        assert_eq!(rate.used(full_at, SECOND), 1000);
        assert_eq!(rate.take(full_at, SECOND), Err(Duration::from_millis(100)));
        let later = SECOND + Duration::from_millis(100);
        full_at = rate.take(full_at, later).unwrap();
        assert_eq!(rate.take(full_at, later), Err(Duration::from_millis(100)));
        assert!(rate.take(rate.put_back(full_at), later).is_ok());
        assert_eq!(rate.used(full_at, Duration::from_secs(9)), 0);
    }

    #[test]
    fn another_rate_keeps_what_was_used_and_changes_the_wait() {
        let (slow, fast) = (Rate::new(2, 60 * SECOND), Rate::new(20, 60 * SECOND));
        let full_at = slow.take(slow.take(SECOND, SECOND).unwrap(), SECOND).unwrap();
        assert_eq!(slow.take(full_at, SECOND), Err(30 * SECOND));
        // Two of twenty are used.
        let mut faster = fast.instead_of(&slow, full_at, SECOND);
        assert_eq!(faster, SECOND + 6 * SECOND);
        for _ in 0..18 {
            faster = fast.take(faster, SECOND).unwrap();
        }
        assert_eq!(fast.take(faster, SECOND), Err(3 * SECOND));
        // Nobody waits for longer than an empty bucket lets wait.
        let slower = slow.instead_of(&fast, faster, SECOND);
        assert_eq!(slow.take(slower, SECOND), Err(30 * SECOND));
        // Nothing was used, and the same rate changes nothing.
        assert_eq!(fast.instead_of(&slow, Duration::ZERO, SECOND), SECOND);
        assert_eq!(slow.instead_of(&slow, full_at, SECOND), full_at);
        let endless = Rate::new(1, Duration::MAX).burst(u32::MAX);
        let _ = endless.instead_of(&fast, faster, SECOND);
    }

    #[test]
    fn odd_rates_are_no_surprise() {
        let rate = Rate::new(0, Duration::ZERO).burst(0);
        assert_eq!((rate.operations(), rate.max_burst()), (1, 1));
        let full_at = rate.take(Duration::ZERO, Duration::ZERO).unwrap();
        assert!(rate.take(full_at, Duration::ZERO).is_err());
        let endless = Rate::new(1, Duration::MAX).burst(u32::MAX);
        let full_at = endless.take(Duration::ZERO, SECOND).unwrap();
        assert!(endless.take(full_at, SECOND).is_ok());
    }

    proptest! {
        #[test]
        fn in_no_time_more_is_begun_than_the_burst_and_the_rate_allow(
            operations in 1..50_u32,
            burst in 1..50_u32,
            pauses in proptest::collection::vec(0..200_u64, 1..300),
        ) {
            let rate = Rate::new(operations, SECOND).burst(burst);
            let (mut full_at, mut now) = (Duration::ZERO, Duration::ZERO);
            let mut begun: Vec<Duration> = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause);
                match rate.take(full_at, now) {
                    Ok(after) => {
                        full_at = after;
                        begun.push(now);
                    }
                    // What is said about the wait is true.
                    Err(wait) => prop_assert!(rate.take(full_at, now + wait).is_ok()),
                }
            }
            for (number, first) in begun.iter().enumerate() {
                let within = begun[number..].iter().filter(|at| **at <= *first + SECOND).count();
                prop_assert!(within <= (operations + burst) as usize, "{within}");
            }
        }
    }
}
