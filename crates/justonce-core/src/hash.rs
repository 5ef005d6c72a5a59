//! One way to hash: keyed BLAKE3 over length-prefixed parts, so that no two lists of parts ever
//! give the same bytes to the hash.

use arrayvec::ArrayVec;
use data_encoding::BASE64URL_NOPAD;

/// A domain of hashing. Each purpose has its own, so that a hash made for one never means
/// anything in another.
pub(crate) type Domain = &'static [u8; 32];

/// The name of a record, from its scope and key.
pub(crate) const RECORD: Domain = b"justonce/record/v1..............";
/// A key derived from a parent.
pub(crate) const CHILD: Domain = b"justonce/child-key/v1...........";
/// A key derived from a payload.
pub(crate) const CONTENT: Domain = b"justonce/content-key/v1.........";
/// The key of a scope's fingerprints.
pub(crate) const FINGERPRINT: Domain = b"justonce/fingerprint-key/v1.....";
/// The stored form of a secret part of a scope.
pub(crate) const SECRET_PART: Domain = b"justonce/secret-part/v1.........";

/// What is hashed at once; most is shorter, and then needs no hasher of two kilobytes.
const AT_ONCE_BYTES: usize = 512;

/// Hashes the parts under a domain.
pub(crate) fn keyed(domain: Domain, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Keyed::new(*domain);
    for part in parts {
        hasher.update(&length(part));
        hasher.update(part);
    }
    hasher.finish()
}

/// A keyed BLAKE3 that gathers short inputs and hashes them at once.
#[derive(Debug)]
pub(crate) struct Keyed {
    key: [u8; 32],
    gathered: ArrayVec<u8, AT_ONCE_BYTES>,
    long: Option<Box<blake3::Hasher>>,
}

impl Keyed {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self { key, gathered: ArrayVec::new(), long: None }
    }

    #[inline]
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if self.long.is_some() || self.gathered.try_extend_from_slice(bytes).is_err() {
            self.update_long(bytes);
        }
    }

    #[cold]
    fn update_long(&mut self, bytes: &[u8]) {
        let (key, gathered) = (&self.key, &self.gathered);
        let long = self.long.get_or_insert_with(|| {
            let mut hasher = blake3::Hasher::new_keyed(key);
            hasher.update(gathered);
            Box::new(hasher)
        });
        long.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        match self.long {
            Some(hasher) => *hasher.finalize().as_bytes(),
            None => *blake3::keyed_hash(&self.key, &self.gathered).as_bytes(),
        }
    }
}

/// The prefix that keeps `("ab", "c")` and `("a", "bc")` apart.
pub(crate) fn length(part: &[u8]) -> [u8; 8] {
    (part.len() as u64).to_le_bytes()
}

/// A digest as 43 characters that are allowed in keys, headers and file names.
pub(crate) fn text(digest: &[u8; 32]) -> String {
    BASE64URL_NOPAD.encode(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_inputs_are_hashed_the_same_way() {
        for size in [0, 1, 7, AT_ONCE_BYTES - 1, AT_ONCE_BYTES, AT_ONCE_BYTES + 1, 5000] {
            let bytes = vec![7; size];
            let expected = *blake3::keyed_hash(RECORD, &bytes).as_bytes();
            for piece in [1, 100, 600, 5000] {
                let mut hasher = Keyed::new(*RECORD);
                bytes.chunks(piece).for_each(|chunk| hasher.update(chunk));
                assert_eq!(hasher.finish(), expected, "{size} bytes by {piece}");
            }
        }
    }
}
