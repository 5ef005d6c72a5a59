//! One way to hash: keyed BLAKE3 over length-prefixed parts, so that no two lists of parts ever
//! give the same bytes to the hash.

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

/// Hashes the parts under a domain.
pub(crate) fn keyed(domain: Domain, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(domain);
    for part in parts {
        hasher.update(&length(part));
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// The prefix that keeps `("ab", "c")` and `("a", "bc")` apart.
pub(crate) fn length(part: &[u8]) -> [u8; 8] {
    (part.len() as u64).to_le_bytes()
}

/// A digest as 43 characters that are allowed in keys, headers and file names.
pub(crate) fn text(digest: &[u8; 32]) -> String {
    BASE64URL_NOPAD.encode(digest)
}
