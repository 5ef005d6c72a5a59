//! The caller's name for an operation.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::canonical::Canonical;
use crate::clock::Timestamp;
use crate::entropy::Entropy;
use crate::hash;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 255;

/// The caller's name for an operation: 1 to 255 printable ASCII characters, spaces among them.
///
/// `Debug` shows a hash, never the key, so that keys do not end up in logs by accident.
///
/// ```
/// use justonce_core::Key;
///
/// // The default: the caller's own key.
/// let key = Key::client("order-17")?;
/// // From what is asked, where callers send no key.
/// let content = Key::content("webhooks", br#"{"id": 17}"#);
/// assert_eq!(content, Key::content("webhooks", br#"{ "id":17 }"#));
/// // For a step inside the operation: the same on every retry.
/// assert_eq!(key.child("charge"), Key::client("order-17")?.child("charge"));
/// # Ok::<(), justonce_core::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// A key chosen by the caller.
    ///
    /// # Errors
    ///
    /// If it is empty, longer than [`MAX_KEY_BYTES`], or holds anything but printable ASCII.
    pub fn client(text: impl AsRef<str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong(text.len()));
        }
        match text.char_indices().find(|(_, c)| !matches!(c, ' '..='~')) {
            Some((at, _)) => Err(KeyError::NotPrintable(at)),
            None => Ok(Self(Arc::from(text))),
        }
    }

    /// A key made from what is asked and who asks: the hash of the source and of the canonical
    /// form of the payload. Payloads that are not JSON count byte for byte.
    #[must_use]
    pub fn content(source: &str, payload: &[u8]) -> Self {
        let canonical = Canonical::of(payload);
        let parts: [&[u8]; 3] = [source.as_bytes(), canonical.kind(), canonical.as_bytes()];
        Self::derived("content", &hash::keyed(hash::CONTENT, &parts))
    }

    /// A key issued by the server: a UUIDv7, whose first half is the time.
    #[must_use]
    pub fn issued(now: Timestamp, entropy: &Entropy) -> Self {
        let mut random = [0_u8; 10];
        for (to, from) in random.iter_mut().zip(entropy.unique_bytes()) {
            *to = from;
        }
        let id = uuid::Builder::from_unix_timestamp_millis(now.as_millis(), &random).into_uuid();
        Self(Arc::from(id.hyphenated().to_string()))
    }

    /// When a UUIDv7 key was issued, by its own account.
    #[must_use]
    pub fn issued_at(&self) -> Option<Timestamp> {
        let id = uuid::Uuid::try_parse(&self.0).ok().filter(|id| id.get_version_num() == 7)?;
        let (seconds, nanos) = id.get_timestamp()?.to_unix();
        let millis = seconds.checked_mul(1000)?.checked_add(u64::from(nanos / 1_000_000))?;
        Some(Timestamp::from_millis(millis))
    }

    /// The key of a step inside the operation that this key names: the same on every retry,
    /// different for every parent and every step.
    ///
    /// Keys of different scopes may be equal. To send a key to a system that does not know our
    /// scopes, derive it with [`Operation::child_key`](crate::Operation::child_key), which
    /// includes the scope.
    #[must_use]
    pub fn child(&self, step: &str) -> Self {
        let parts: [&[u8]; 2] = [self.0.as_bytes(), step.as_bytes()];
        Self::derived("child", &hash::keyed(hash::CHILD, &parts))
    }

    /// The text of the key. Keep it out of logs: use `Debug`, which shows a hash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn derived(kind: &str, digest: &[u8; 32]) -> Self {
        Self(Arc::from(format!("{kind}-{}", hash::text(digest))))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = hash::text(blake3::hash(self.0.as_bytes()).as_bytes());
        write!(f, "Key(#{})", digest.get(..12).unwrap_or_default())
    }
}

/// Why a key was refused. It never holds the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The key is empty.
    #[error("the key is empty: send 1 to 255 printable characters")]
    Empty,
    /// The key has this many bytes, more than [`MAX_KEY_BYTES`].
    #[error(
        "the key has {0} bytes, at most {max} are allowed: send a UUID or a hash",
        max = MAX_KEY_BYTES
    )]
    TooLong(usize),
    /// The character at this byte is not printable ASCII.
    #[error(
        "the key has a control character or a non-ASCII character at byte {0}: send printable \
             ASCII only"
    )]
    NotPrintable(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked() {
        assert_eq!(Key::client(""), Err(KeyError::Empty));
        assert_eq!(Key::client("a\u{e9}"), Err(KeyError::NotPrintable(1)));
        for control in ["a\n", "a\t", "a\u{7f}", "a\0"] {
            assert_eq!(Key::client(control), Err(KeyError::NotPrintable(1)), "{control:?}");
        }
        for spaced in ["a b", " a", "a ", " "] {
            assert_eq!(Key::client(spaced).unwrap().as_str(), spaced);
        }
        assert_eq!(Key::client("x".repeat(256)), Err(KeyError::TooLong(256)));
        assert!(Key::client("x".repeat(255)).is_ok());
    }

    #[test]
    fn debug_does_not_show_the_key() {
        let shown = format!("{:?}", Key::client("secret-key").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn issued_keys_are_version_7_and_carry_their_time() {
        let now = Timestamp::from_millis(1_763_196_000_123);
        let entropy = Entropy::seeded(1);
        let key = Key::issued(now, &entropy);
        assert_eq!(key.issued_at(), Some(now));
        assert_ne!(key, Key::issued(now, &entropy));
        assert_eq!(Key::client("order-17").unwrap().issued_at(), None);
    }

    #[test]
    fn the_source_is_part_of_a_content_key() {
        assert_ne!(Key::content("a", b"{}"), Key::content("b", b"{}"));
        assert_ne!(Key::content("a", b"b{}"), Key::content("ab", b"{}"));
    }
}
