//! Random numbers that can be repeated.

use std::ops::RangeInclusive;
use std::time::Duration;

use justonce_core::Entropy;
use uuid::Uuid;

/// The random numbers of one part of a run.
#[derive(Debug)]
pub(crate) struct Chance(Entropy);

impl Chance {
    /// The same numbers for the same seed and name, and unrelated ones for any other name.
    pub(crate) fn new(seed: u64, name: &[u64]) -> Self {
        let start = name.iter().fold(seed, |state, part| Entropy::seeded(state ^ part).next_u64());
        Self(Entropy::seeded(start))
    }

    /// A number within the range.
    pub(crate) fn within(&self, range: &RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start()).saturating_add(1);
        range.start() + self.0.next_u64() % span
    }

    /// True in this many of a hundred cases.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.within(&(1..=100)) <= percent
    }

    /// A time within a range of milliseconds.
    pub(crate) fn millis(&self, range: &RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// A key, as clients should make them.
    pub(crate) fn uuid(&self) -> Uuid {
        self.0.next_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_repeat_by_name_and_stay_within_their_range() {
        let draw = |seed, name: &[u64]| {
            let chance = Chance::new(seed, name);
            (0..50).map(|_| chance.within(&(3..=9))).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, &[1, 2]), draw(7, &[1, 2]));
        assert_ne!(draw(7, &[1, 2]), draw(7, &[2, 1]));
        assert_ne!(draw(7, &[1, 2]), draw(8, &[1, 2]));
        assert!(draw(7, &[1]).iter().all(|number| (3..=9).contains(number)));
    }

    #[test]
    fn keys_are_random_uuids() {
        let chance = Chance::new(7, &[]);
        let (a, b) = (chance.uuid(), chance.uuid());
        assert_eq!((a.get_version_num(), b.get_version_num()), (4, 4));
        assert_ne!(a, b);
    }
}
