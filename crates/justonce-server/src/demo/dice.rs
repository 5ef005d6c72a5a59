//! Chance that can be repeated.

use std::ops::RangeInclusive;
use std::time::Duration;

use justonce::Entropy;
use uuid::Uuid;

/// A stream of chances that belongs to one thing of one run.
#[derive(Debug)]
pub(super) struct Dice(Entropy);

impl Dice {
    /// The same chances for the same seed and name, and unrelated ones for any other name.
    pub(super) fn new(seed: u64, name: &[u64]) -> Self {
        let start = name.iter().fold(seed, |state, part| Entropy::seeded(state ^ part).next_u64());
        Self(Entropy::seeded(start))
    }

    /// A number within the range.
    pub(super) fn within(&self, range: &RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start()).saturating_add(1);
        range.start() + self.0.next_u64() % span
    }

    /// True in this many of a hundred cases.
    pub(super) fn percent(&self, percent: u64) -> bool {
        self.within(&(1..=100)) <= percent
    }

    /// A time within a range of milliseconds.
    pub(super) fn millis(&self, range: &RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// A key as careful clients make them.
    pub(super) fn uuid(&self) -> Uuid {
        self.0.next_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_repeat_by_name_and_stay_within_their_range() {
        let draw = |seed, name: &[u64]| {
            let dice = Dice::new(seed, name);
            (0..50).map(|_| dice.within(&(3..=9))).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, &[1, 2]), draw(7, &[1, 2]));
        assert_ne!(draw(7, &[1, 2]), draw(7, &[2, 1]));
        assert_ne!(draw(7, &[1, 2]), draw(8, &[1, 2]));
        assert!(draw(7, &[1]).iter().all(|number| (3..=9).contains(number)));
    }

    #[test]
    fn keys_are_random_uuids() {
        let dice = Dice::new(7, &[]);
        let (a, b) = (dice.uuid(), dice.uuid());
        assert_eq!((a.get_version_num(), b.get_version_num()), (4, 4));
        assert_ne!(a, b);
    }
}
