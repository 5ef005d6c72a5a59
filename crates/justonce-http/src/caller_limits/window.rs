//! Bytes that were stored within a retention, as a pure value.

use std::time::Duration;

/// Into how many parts a retention is divided. Bytes count until the end of the part in which
/// their retention ends: too long by an eighth at most, and never too short.
const PARTS: u32 = 8;
/// The parts in which there may be bytes that count: all of a retention, and the current one.
const SLOTS: usize = PARTS as usize + 1;

/// How many bytes were stored within a retention.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredWindow {
    /// The length of a part; zero if nothing was stored.
    part: Duration,
    /// The number of the last part in which something was stored.
    last: u64,
    /// The bytes of each part, at its number modulo the count.
    bytes: [u64; SLOTS],
}

impl StoredWindow {
    /// Adds bytes that were stored now.
    pub(super) fn add(&mut self, bytes: u64, retention: Duration, now: Duration) {
        let part = (retention / PARTS).max(Duration::from_millis(1));
        if part != self.part {
            // Another retention since a reload: everything counts as stored now.
            let before = self.total(now);
            *self = Self { part, last: number(part, now), bytes: [0; SLOTS] };
            self.put(before);
        }
        self.forget(now);
        self.put(bytes);
    }

    /// How many bytes count now.
    pub(super) fn total(&self, now: Duration) -> u64 {
        self.counting(now).map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
    }

    /// How long it takes until fewer bytes than the limit count; nothing if that is so now.
    pub(super) fn full_for(&self, limit: u64, now: Duration) -> Option<Duration> {
        let mut left = self.total(now);
        if left < limit {
            return None;
        }
        let mut parts = self.counting(now);
        let last = parts.find_map(|(number, bytes)| {
            left = left.saturating_sub(bytes);
            (left < limit).then_some(number)
        })?;
        let ends = u32::try_from(last.saturating_add(SLOTS as u64)).unwrap_or(u32::MAX);
        Some(self.part.saturating_mul(ends).saturating_sub(now))
    }

    /// The parts that count now, from the oldest.
    fn counting(&self, now: Duration) -> impl Iterator<Item = (u64, u64)> + '_ {
        let current = number(self.part, now);
        let first = current.saturating_sub(PARTS.into());
        (first..=self.last.min(current)).map(|number| (number, self.slot(number)))
    }

    /// Begins the current part.
    fn forget(&mut self, now: Duration) {
        let current = number(self.part, now);
        let gone = current.saturating_sub(self.last).min(SLOTS as u64);
        for number in (self.last.saturating_add(1)..).take(usize::try_from(gone).unwrap_or(SLOTS)) {
            self.set(number, 0);
        }
        self.last = self.last.max(current);
    }

    fn put(&mut self, bytes: u64) {
        let sum = self.slot(self.last).saturating_add(bytes);
        self.set(self.last, sum);
    }

    fn slot(&self, number: u64) -> u64 {
        self.bytes.get(index(number)).copied().unwrap_or_default()
    }

    fn set(&mut self, number: u64, bytes: u64) {
        if let Some(slot) = self.bytes.get_mut(index(number)) {
            *slot = bytes;
        }
    }
}

/// The number of the part in which a moment lies.
fn number(part: Duration, now: Duration) -> u64 {
    let count = now.as_nanos().checked_div(part.as_nanos()).unwrap_or_default();
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn index(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn bytes_count_for_a_retention() {
        let mut window = StoredWindow::default();
        assert_eq!((window.total(HOUR), window.full_for(1, HOUR)), (0, None));
        window.add(10, 8 * HOUR, HOUR / 2);
        window.add(5, 8 * HOUR, 3 * HOUR);
        assert_eq!(window.total(8 * HOUR), 15);
        assert_eq!(window.full_for(16, 8 * HOUR), None);
        assert_eq!(window.full_for(15, 8 * HOUR), Some(HOUR));
        assert_eq!(window.full_for(5, 8 * HOUR), Some(4 * HOUR));
        assert_eq!(window.total(9 * HOUR), 5);
        assert_eq!(window.total(12 * HOUR), 0);
        // After a long time nothing of the old is left.
        window.add(1, 8 * HOUR, 1000 * HOUR);
        assert_eq!(window.total(1000 * HOUR), 1);
    }

    #[test]
    fn another_retention_forgets_nothing() {
        let mut window = StoredWindow::default();
        window.add(10, 8 * HOUR, HOUR);
        window.add(5, 16 * HOUR, 2 * HOUR);
        assert_eq!(window.total(2 * HOUR), 15);
        assert_eq!(window.total(20 * HOUR), 0);
    }

    proptest! {
        #[test]
        fn what_is_retained_always_counts(
            stored in proptest::collection::vec((0..4000_u64, 0..100_u64), 1..60),
        ) {
            let retention = Duration::from_secs(8000);
            let (mut window, mut now) = (StoredWindow::default(), Duration::ZERO);
            let mut all: Vec<(Duration, u64)> = Vec::new();
            for (pause, bytes) in stored {
                now += Duration::from_secs(pause);
                window.add(bytes, retention, now);
                all.push((now, bytes));
                let within = |longest: Duration| -> u64 {
                    let young = all.iter().filter(|(at, _)| *at + longest > now);
                    young.map(|(_, bytes)| bytes).sum()
                };
                prop_assert!(window.total(now) >= within(retention));
                prop_assert!(window.total(now) <= within(retention + retention / PARTS));
                if let Some(wait) = window.full_for(50, now) {
                    prop_assert!(window.total(now + wait) < 50);
                }
            }
        }
    }
}
