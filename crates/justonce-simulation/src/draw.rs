//! Draws from a seed.

use std::time::Duration;

use justonce_core::Entropy;

/// A stream of draws.
#[derive(Debug)]
pub(crate) struct Draw(Entropy);

impl Draw {
    /// The stream of a seed with this name. Streams of different names have nothing in common, so
    /// that one that is used more or less than before changes no other.
    pub(crate) fn keyed(seed: u64, name: &[u64]) -> Self {
        let mut state = seed;
        for part in name {
            state = Entropy::seeded(state ^ part.rotate_left(17)).next_u64();
        }
        Self(Entropy::seeded(state))
    }

    /// A number below the limit; zero if there is none below it.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        if limit == 0 {
            return 0;
        }
        let wide = u128::from(self.0.next_u64()) * u128::from(limit);
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// A number from the first to the second, both included.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// The same in milliseconds.
    pub(crate) fn millis(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// Whether something happens that happens in so many of a hundred cases.
    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub(crate) fn one_of<T: Copy>(&self, first: T, others: &[T]) -> T {
        let drawn = usize::try_from(self.below(others.len() as u64 + 1)).unwrap_or_default();
        drawn.checked_sub(1).and_then(|at| others.get(at)).copied().unwrap_or(first)
    }

    /// A seed for something that draws by itself.
    pub(crate) fn seed(&self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_stream() {
        let drawn = |name: &[u64]| {
            let draw = Draw::keyed(7, name);
            (0..5).map(|_| draw.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(&[1, 2]), drawn(&[1, 2]));
        assert_ne!(drawn(&[1, 2]), drawn(&[2, 1]));
    }

    #[test]
    fn draws_keep_their_bounds() {
        let draw = Draw::keyed(1, &[]);
        assert!((0..1000).all(|_| (3..=5).contains(&draw.between(3, 5))));
        assert!((0..1000).all(|_| !draw.percent(0) && draw.percent(100)));
        assert!((0..1000).any(|_| draw.one_of(1, &[2, 3]) == 3));
        assert_eq!(draw.below(0), 0);
    }
}
