//! The names of records.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::hash;
use crate::key::Key;
use crate::scope::Scope;

/// The name of a record: a hash of its scope and key. It may be logged and shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// The name of the record of `key` in `scope`.
    #[must_use]
    pub fn of(scope: &Scope, key: &Key) -> Self {
        let parts: [&[u8]; 2] = [scope.as_str().as_bytes(), key.as_str().as_bytes()];
        Self(hash::keyed(hash::RECORD, &parts))
    }

    /// A name as a store kept it.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads a name back as it is shown: 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// The name as it is shown, in ASCII: for those who write it often.
    #[must_use]
    pub fn hex(&self) -> [u8; 64] {
        let mut hex = [0; 64];
        HEXLOWER.encode_mut(&self.0, &mut hex);
        hex
    }

    /// The bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = HEXLOWER.encode(&self.0);
        write!(f, "RecordId({})", hex.get(..12).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_and_key_cannot_be_shifted() {
        let scope = |tenant: &str| Scope::builder().tenant(tenant).build().unwrap();
        let key = |text: &str| Key::client(text).unwrap();
        assert_ne!(RecordId::of(&scope("a"), &key("bc")), RecordId::of(&scope("ab"), &key("c")));
        assert_eq!(RecordId::of(&scope("a"), &key("b")), RecordId::of(&scope("a"), &key("b")));
    }

    #[test]
    fn the_name_of_a_record_never_changes() {
        let id = RecordId::of(&Scope::global(), &Key::client("order-17").unwrap());
        assert_eq!(
            id.to_string(),
            "f6ffe58e3c1114963ec693e76655c44a6a9849c7123fb1a8a096bd00bdeeceb7",
            "records written by earlier releases would no longer be found"
        );
    }

    #[test]
    fn names_are_read_back_as_they_are_shown() {
        let id = RecordId::of(&Scope::global(), &Key::client("order-17").unwrap());
        assert_eq!(RecordId::parse(&id.to_string()), Some(id));
        assert_eq!(RecordId::parse(&id.to_string().to_uppercase()), Some(id));
        for wrong in ["", "f6ff", &id.to_string()[1..], &format!("{id}00"), &"g".repeat(64)] {
            assert_eq!(RecordId::parse(wrong), None, "{wrong}");
        }
    }
}
