//! Randomness, injected: for jitter, claim tokens and issued keys.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The odd constant of SplitMix64: steps of it visit every 64-bit value before one repeats.
const GOLDEN_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers that can be seeded, so that every run can be repeated.
///
/// It spreads load and makes names unique; it is not a source of secrets.
///
/// A process can be cloned: by a fork, or from a snapshot of its machine. The clones draw the same
/// numbers then. What must be unique all the same, the tokens of claims, issued keys and UUIDs, has
/// new randomness of the operating system in each of them, unless the source is seeded.
#[derive(Debug)]
pub struct Entropy {
    instance: u64,
    state: AtomicU64,
    /// Whether the operating system is asked as well.
    system: bool,
}

impl Entropy {
    /// The same numbers for the same seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { instance: mix(!seed), state: AtomicU64::new(seed), system: false }
    }

    /// Numbers that differ in every process, seeded by the operating system through the standard
    /// library's hasher.
    #[must_use]
    pub fn from_system() -> Self {
        let draw = || RandomState::new().build_hasher().finish();
        Self { instance: draw(), state: AtomicU64::new(draw()), system: true }
    }

    /// What it is in a process that was started from a snapshot of this one: the same bits.
    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> Self {
        Self { state: AtomicU64::new(self.state.load(Ordering::Relaxed)), ..*self }
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
        uuid::Builder::from_random_bytes(self.unique_bytes()).into_uuid()
    }

    /// The next 128 bits: half of them name this source, so that two sources meet only if both
    /// halves do. Clones of the process do not meet at all.
    pub fn next_u128(&self) -> u128 {
        ((u128::from(self.instance) << 64) | u128::from(self.next_u64())) ^ self.system_bits()
    }

    /// 128 bits that no clone of the process draws.
    pub(crate) fn unique_bytes(&self) -> [u8; 16] {
        let drawn = (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64());
        (drawn ^ self.system_bits()).to_be_bytes()
    }

    /// Randomness that is not part of the process. A system that has none leaves what is drawn
    /// here, as unique as without clones.
    fn system_bits(&self) -> u128 {
        let mut bytes = [0; 16];
        if self.system && getrandom::fill(&mut bytes).is_err() {
            bytes = [0; 16];
        }
        u128::from_ne_bytes(bytes)
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
    fn two_processes_from_one_snapshot_do_not_share_what_must_be_unique() {
        let one = Entropy::from_system();
        let other = one.snapshot();
        assert_eq!(one.next_u64(), other.next_u64(), "the stream itself is the same");
        assert_ne!(one.next_u128(), other.next_u128());
        assert_ne!(one.next_uuid(), other.next_uuid());
        let now = crate::Timestamp::from_millis(1);
        assert_ne!(crate::Key::issued(now, &one), crate::Key::issued(now, &other));
    }

    #[test]
    fn a_seed_repeats_in_every_clone() {
        let one = Entropy::seeded(7);
        let other = one.snapshot();
        assert_eq!(one.next_u128(), other.next_u128());
        assert_eq!(one.next_uuid(), other.next_uuid());
    }

    #[test]
    fn two_system_sources_differ() {
        assert_ne!(Entropy::from_system().next_u128(), Entropy::from_system().next_u128());
    }
}
