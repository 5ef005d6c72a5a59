//! Randomness, injected: for jitter, claim tokens and issued keys.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The odd constant of SplitMix64: steps of it visit every 64-bit value before one repeats.
const GOLDEN_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers that can be seeded, so that every run can be repeated.
///
/// It spreads load and makes names unique; it is not a source of secrets.
#[derive(Debug)]
pub struct Entropy {
    instance: u64,
    state: AtomicU64,
}

impl Entropy {
    /// The same numbers for the same seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { instance: mix(!seed), state: AtomicU64::new(seed) }
    }

    /// Numbers that differ in every process, seeded by the operating system through the standard
    /// library's hasher.
    #[must_use]
    pub fn from_system() -> Self {
        let draw = || RandomState::new().build_hasher().finish();
        Self { instance: draw(), state: AtomicU64::new(draw()) }
    }

    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        mix(self.state.fetch_add(GOLDEN_STEP, Ordering::Relaxed).wrapping_add(GOLDEN_STEP))
    }

    /// The next 32 bits.
    pub fn next_u32(&self) -> u32 {
        u32::try_from(self.next_u64() >> 32).unwrap_or_default()
    }

    /// The next random UUID (version 4).
    pub fn next_uuid(&self) -> uuid::Uuid {
        let random = uuid::Uuid::from_u64_pair(self.next_u64(), self.next_u64());
        uuid::Builder::from_random_bytes(random.into_bytes()).into_uuid()
    }

    /// The next 128 bits: half of them name this source, so that two sources meet only if both
    /// halves do.
    pub fn next_u128(&self) -> u128 {
        (u128::from(self.instance) << 64) | u128::from(self.next_u64())
    }
}

/// The output function of SplitMix64: a bijection, so distinct states give distinct numbers.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_seed_repeats_and_a_stream_does_not() {
        let (a, b) = (Entropy::seeded(7), Entropy::seeded(7));
        let drawn: HashSet<u128> = (0..10_000).map(|_| a.next_u128()).collect();
        assert_eq!(drawn.len(), 10_000);
        assert!((0..10_000).all(|_| drawn.contains(&b.next_u128())));
    }

    #[test]
    fn two_system_sources_differ() {
        assert_ne!(Entropy::from_system().next_u128(), Entropy::from_system().next_u128());
    }
}
