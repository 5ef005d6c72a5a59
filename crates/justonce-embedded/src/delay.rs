//! The adaptive commit delay: on slow disks it pays to wait a moment for the callers of the last
//! batch to come back, so that all share the next sync. On fast disks it does not, and there is
//! no wait.

use std::time::Duration;

/// Syncs faster than this are never waited for: the wait would cost more than it saves.
const FAST_SYNC: Duration = Duration::from_micros(100);
/// At most this part of a sync's time is waited.
const WAIT_DIVISOR: u32 = 4;
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_millis(2);
/// The weight of the past in the running averages: 7 of 8 parts.
const SMOOTHING: u32 = 8;
/// Every how many batches to look whether there are more callers than thought.
const LOOK_EVERY: u32 = 16;

/// Decides how long the writer waits for more before it commits.
#[derive(Clone, Debug)]
pub struct CommitDelay {
    enabled: bool,
    sync: Duration,
    last_batch: usize,
    /// How many callers there seem to be: the largest batch, or sum of two batches in a row,
    /// decaying.
    cohort: usize,
    observed: u32,
}

impl CommitDelay {
    /// A delay that adapts to the disk.
    #[must_use]
    pub const fn adaptive() -> Self {
        Self { enabled: true, sync: Duration::ZERO, last_batch: 0, cohort: 0, observed: 0 }
    }

    /// No delay.
    #[must_use]
    pub const fn none() -> Self {
        Self { enabled: false, sync: Duration::ZERO, last_batch: 0, cohort: 0, observed: 0 }
    }

    /// Learns from a batch.
    pub fn observe(&mut self, batch: usize, sync: Duration) {
        self.sync = (self.sync * (SMOOTHING - 1) + sync) / SMOOTHING;
        self.observed = self.observed.wrapping_add(1);
        // Without waiting, the callers fall into two halves that take turns. Once there is
        // waiting, a look now and then tells whether there are more of them by now.
        let halves = !self.waits() || self.observed.is_multiple_of(LOOK_EVERY);
        let seen = if halves { batch + self.last_batch } else { batch.max(self.last_batch) };
        self.cohort = seen.max(self.cohort - self.cohort.div_ceil(16));
        self.last_batch = batch;
    }

    /// How many items to wait for and how long, if that pays with `waiting` items there already.
    #[must_use]
    pub fn worth_waiting(&self, waiting: usize) -> Option<(usize, Duration)> {
        if !self.waits() || waiting >= self.cohort {
            return None;
        }
        Some((self.cohort, (self.sync / WAIT_DIVISOR).min(MAX_WAIT)))
    }

    fn waits(&self) -> bool {
        self.enabled && self.sync >= FAST_SYNC
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(batches: &[usize], sync: Duration) -> CommitDelay {
        let mut delay = CommitDelay::adaptive();
        for _ in 0..50 {
            for batch in batches {
                delay.observe(*batch, sync);
            }
        }
        delay
    }

    #[test]
    fn a_fast_disk_is_never_waited_for() {
        let delay = after(&[16, 16], Duration::from_micros(200));
        assert_eq!(delay.worth_waiting(1), None);
    }

    #[test]
    fn on_a_slow_disk_two_half_cohorts_become_one() {
        let delay = after(&[16, 16], Duration::from_millis(4));
        let (enough, wait) = delay.worth_waiting(16).unwrap();
        assert!(enough > 16, "{enough}");
        assert!(wait <= MAX_WAIT);
        assert_eq!(delay.worth_waiting(enough), None);
    }

    #[test]
    fn a_lone_caller_hardly_ever_waits() {
        let mut delay = after(&[1], Duration::from_millis(4));
        let waits = (0..160)
            .filter(|_| {
                delay.observe(1, Duration::from_millis(4));
                delay.worth_waiting(1).is_some()
            })
            .count();
        assert!(waits <= 10, "{waits} of 160");
    }

    #[test]
    fn more_callers_are_noticed() {
        let mut delay = after(&[16, 16], Duration::from_millis(4));
        (0..64).for_each(|_| delay.observe(40, Duration::from_millis(4)));
        assert!(delay.worth_waiting(40).is_some());
    }

    #[test]
    fn it_can_be_turned_off() {
        let mut delay = CommitDelay::none();
        delay.observe(16, Duration::from_secs(1));
        assert_eq!(delay.worth_waiting(1), None);
    }
}
