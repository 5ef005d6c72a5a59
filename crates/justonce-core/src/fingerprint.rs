//! The digest of what was asked.

use std::fmt;

use crate::canonical::Canonical;
use crate::hash::{self, Keyed};
use crate::scope::Scope;

/// A versioned digest of what was asked; it detects one key used for two different things.
///
/// Digests of different versions cannot be compared, so a change of the algorithm never causes a
/// false mismatch.
///
/// ```
/// use justonce_core::{Fingerprint, Scope};
///
/// let scope = Scope::global();
/// // The default: BLAKE3, keyed by the scope, over the canonical payload.
/// let asked = Fingerprint::of_json(&scope, br#"{"amount": 5, "to": "bob"}"#);
/// assert!(asked.agrees_with(&Fingerprint::of_json(&scope, br#"{"to":"bob","amount":5}"#)));
/// assert!(!asked.agrees_with(&Fingerprint::of_json(&scope, br#"{"to":"bob","amount":6}"#)));
///
/// // Customised: any named parts.
/// let request = Fingerprint::builder(&scope)
///     .part("method", b"POST")
///     .part("path", b"/payments")
///     .json("body", br#"{"amount": 5}"#)
///     .finish();
/// assert!(!asked.agrees_with(&request));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The version of digests by BLAKE3 keyed by the scope.
    pub const BLAKE3: u8 = 1;
    /// The version of digests by SHA-256 with the scope's key in front.
    pub const SHA256: u8 = 2;

    /// The version of the digests of HTTP requests, which consist of several: what is asked, where,
    /// and by whom. `justonce-http` makes them.
    pub const REQUEST: u8 = 3;

    /// No fingerprint: agrees with everything. For operations whose key says it all.
    pub const UNCHECKED: Self = Self { version: 0, digest: [0; 32] };

    /// The fingerprint of a payload in which every byte counts.
    #[must_use]
    pub fn of(scope: &Scope, payload: &[u8]) -> Self {
        Self::builder(scope).part("payload", payload).finish()
    }

    /// The fingerprint of a JSON payload, in which key order and white space do not count.
    #[must_use]
    pub fn of_json(scope: &Scope, payload: &[u8]) -> Self {
        Self::builder(scope).json("payload", payload).finish()
    }

    /// Starts a fingerprint of several parts.
    pub fn builder(scope: &Scope) -> FingerprintBuilder {
        FingerprintKey::of(scope).builder()
    }

    /// Starts a fingerprint by SHA-256, for places where BLAKE3 is not approved.
    #[cfg(feature = "sha2")]
    pub fn sha256_builder(scope: &Scope) -> FingerprintBuilder {
        use sha2::Digest;
        let FingerprintKey(key) = FingerprintKey::of(scope);
        FingerprintBuilder { algorithm: Algorithm::Sha256(sha2::Sha256::new_with_prefix(key)) }
    }

    /// A fingerprint as a store kept it. Versions this program does not know are kept as they
    /// are: they agree with every other version.
    #[must_use]
    pub const fn from_parts(version: u8, digest: [u8; 32]) -> Self {
        Self { version, digest }
    }

    /// The version of the algorithm; 0 for [`Fingerprint::UNCHECKED`].
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The digest.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Whether both may be of the same thing: equal, or not comparable.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.version != other.version || self.digest == other.digest
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = hash::text(&self.digest);
        write!(f, "Fingerprint(v{} {})", self.version, digest.get(..12).unwrap_or_default())
    }
}

/// What keys the fingerprints of a scope, to be kept where many are made in one scope.
///
/// ```
/// use justonce_core::{Fingerprint, FingerprintKey, Scope};
///
/// let scope = Scope::global();
/// let key = FingerprintKey::of(&scope);
/// assert_eq!(key.builder().part("payload", b"a").finish(), Fingerprint::of(&scope, b"a"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FingerprintKey([u8; 32]);

impl FingerprintKey {
    /// The key of a scope.
    #[must_use]
    pub fn of(scope: &Scope) -> Self {
        Self(hash::keyed(hash::FINGERPRINT, &[scope.as_str().as_bytes()]))
    }

    /// Starts a fingerprint of several parts.
    pub fn builder(&self) -> FingerprintBuilder {
        FingerprintBuilder { algorithm: Algorithm::Blake3(Keyed::new(self.0)) }
    }
}

impl fmt::Debug for FingerprintKey {
    /// Not the key: with it, guesses at what was asked can be checked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey")
    }
}

/// Collects the parts of a [`Fingerprint`]. Order counts.
#[must_use = "a builder does nothing until `finish`"]
#[derive(Debug)]
pub struct FingerprintBuilder {
    algorithm: Algorithm,
}

#[derive(Debug)]
#[cfg_attr(
    feature = "sha2",
    expect(
        clippy::large_enum_variant,
        reason = "on the stack, for a moment; a box would be an allocation"
    )
)]
enum Algorithm {
    Blake3(Keyed),
    #[cfg(feature = "sha2")]
    Sha256(sha2::Sha256),
}

impl FingerprintBuilder {
    /// Adds a part in which every byte counts.
    pub fn part(self, name: &str, value: &[u8]) -> Self {
        self.canonical(name, &Canonical::Raw(value))
    }

    /// Adds a JSON part in its canonical form; what does not parse counts byte for byte.
    pub fn json(self, name: &str, value: &[u8]) -> Self {
        self.canonical(name, &Canonical::of(value))
    }

    /// Adds a part that is in its canonical form already.
    pub fn canonical(mut self, name: &str, value: &Canonical<'_>) -> Self {
        self.add(name, value);
        self
    }

    /// The same where many are added: a builder is large to be moved about.
    pub fn add(&mut self, name: &str, value: &Canonical<'_>) {
        for bytes in [name.as_bytes(), value.kind(), value.as_bytes()] {
            self.update(&hash::length(bytes));
            self.update(bytes);
        }
    }

    /// Finishes the fingerprint.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        match self.algorithm {
            Algorithm::Blake3(hasher) => {
                Fingerprint { version: Fingerprint::BLAKE3, digest: hasher.finish() }
            }
            #[cfg(feature = "sha2")]
            Algorithm::Sha256(hasher) => {
                use sha2::Digest;
                Fingerprint { version: Fingerprint::SHA256, digest: hasher.finalize().into() }
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match &mut self.algorithm {
            Algorithm::Blake3(hasher) => hasher.update(bytes),
            #[cfg(feature = "sha2")]
            Algorithm::Sha256(hasher) => sha2::Digest::update(hasher, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_be_shifted() {
        let scope = Scope::global();
        let a = Fingerprint::builder(&scope).part("a", b"bc").finish();
        let b = Fingerprint::builder(&scope).part("ab", b"c").finish();
        assert!(!a.agrees_with(&b));
    }

    #[test]
    fn a_scope_keys_its_fingerprints() {
        let other = Scope::builder().tenant("other").build().unwrap();
        let a = Fingerprint::of(&Scope::global(), b"same");
        assert_ne!(a.digest(), Fingerprint::of(&other, b"same").digest());
    }

    #[test]
    fn versions_do_not_mismatch_each_other() {
        let scope = Scope::global();
        let now = Fingerprint::of(&scope, b"a");
        let future = Fingerprint::from_parts(200, [9; 32]);
        assert!(now.agrees_with(&future) && future.agrees_with(&now));
        assert!(now.agrees_with(&Fingerprint::UNCHECKED));
    }

    #[cfg(feature = "sha2")]
    #[test]
    fn sha256_is_another_version() {
        let scope = Scope::global();
        let a = Fingerprint::sha256_builder(&scope).part("payload", b"a").finish();
        let b = Fingerprint::sha256_builder(&scope).part("payload", b"b").finish();
        assert!(!a.agrees_with(&b));
        assert!(a.agrees_with(&Fingerprint::of(&scope, b"b")));
        assert_eq!(a.version(), Fingerprint::SHA256);
    }
}
