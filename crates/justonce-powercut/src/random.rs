//! Random choices that can be made again from their seed.

use justonce_core::Entropy;

/// A source of choices.
#[derive(Debug)]
pub struct Random(Entropy);

impl Random {
    /// The same seeds make the same choices.
    #[must_use]
    pub fn seeded(seed: u64, of: u64) -> Self {
        Self(Entropy::seeded(hash(&[seed.to_le_bytes(), of.to_le_bytes()].concat())))
    }

    /// A number below `end`; zero if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = end.max(1) as u64;
        usize::try_from(self.0.next_u64() % end).unwrap_or(0)
    }

    /// Yes in so many of a hundred cases.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of several.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Bytes that do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.0.next_u64().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

/// FNV-1a: the same on every machine and in every release.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    bytes
        .iter()
        .fold(start, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
