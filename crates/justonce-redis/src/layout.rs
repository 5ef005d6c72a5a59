//! The keys in Redis: 256 buckets, each in one hash slot.
//!
//! All keys of a bucket begin with the same hash tag:
//!
//! ```text
//! {prefix:3f}r<32 bytes>   a record; the bytes are its id, whose first byte is the bucket
//! {prefix:3f}i             the index: the ids of the bucket's records, by class and due moment
//! {prefix:3f}f             the last fence given in the bucket, in a cluster
//! {prefix:}f               the last fence given, with one server for all buckets
//! ```

use std::io::Write;

use justonce_core::{RecordId, StateName};
use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

/// The number of buckets. It is part of the layout and never changes.
pub(crate) const BUCKETS: usize = 256;
/// The distance between two classes of the index; moments in milliseconds lie within it.
pub(crate) const CLASS: u64 = 1 << 45;
/// The state of each class of the index, as it is stored.
pub(crate) const CLASSES: [StateName; 7] = [
    StateName::InProgress,
    StateName::InProgress,
    StateName::Completed,
    StateName::Failed,
    StateName::Unknown,
    StateName::Tombstone,
    StateName::Released,
];
/// The hash slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The names of all keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    tags: Vec<String>,
    common: String,
    channel: String,
}

impl Layout {
    pub(crate) fn new(prefix: &str) -> Self {
        let tags = (0..BUCKETS).map(|bucket| format!("{{{prefix}:{bucket:02x}}}")).collect();
        Self { tags, common: format!("{{{prefix}:}}"), channel: format!("{prefix}:settled") }
    }

    /// The channel on which the ends of claims are published.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// The key of a record.
    pub(crate) fn record<'a>(&'a self, id: &'a RecordId) -> Key<'a> {
        self.of_record(id, b'r')
    }

    /// Another key that belongs to a record.
    pub(crate) fn of_record<'a>(&'a self, id: &'a RecordId, kind: u8) -> Key<'a> {
        Key { tag: self.tag(bucket(id)), kind, name: id.as_bytes() }
    }

    /// The key of a bucket's index.
    pub(crate) fn index(&self, bucket: u8) -> Key<'_> {
        Key { tag: self.tag(bucket), kind: b'i', name: &[] }
    }

    /// The key of the last fence of a bucket, or of all.
    pub(crate) fn fence(&self, bucket: Option<u8>) -> Key<'_> {
        let tag = bucket.map_or(&*self.common, |bucket| self.tag(bucket));
        Key { tag, kind: b'f', name: &[] }
    }

    /// A key of a bucket that nothing is ever written to.
    pub(crate) fn nothing(&self, bucket: u8) -> Key<'_> {
        Key { tag: self.tag(bucket), kind: b'n', name: &[] }
    }

    /// A key of a bucket that is written and removed at once, so that there is a write to wait for.
    pub(crate) fn mark(&self, bucket: u8) -> Key<'_> {
        Key { tag: self.tag(bucket), kind: b'w', name: &[] }
    }

    fn tag(&self, bucket: u8) -> &str {
        self.tags.get(usize::from(bucket)).map_or("", String::as_str)
    }

    /// The hash slot of a bucket.
    pub(crate) fn slot(&self, bucket: u8) -> u16 {
        let hashed = self.tag(bucket).trim_start_matches('{').trim_end_matches('}');
        crc16(hashed.as_bytes()) % SLOTS
    }
}

/// A key. Its parts are joined when it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    tag: &'a str,
    kind: u8,
    name: &'a [u8],
}

impl Key<'_> {
    /// The length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.tag.len() + 1 + self.name.len()
    }
}

impl ToRedisArgs for Key<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let mut key = out.writer_for_next_arg();
        for part in [self.tag.as_bytes(), &[self.kind], self.name] {
            // Writing to memory does not fail.
            let _ = key.write_all(part);
        }
    }
}

impl ToSingleRedisArg for Key<'_> {}

/// The bucket of a record. Buckets are in the order of ids.
pub(crate) fn bucket(id: &RecordId) -> u8 {
    let [first, ..] = id.as_bytes();
    *first
}

/// CRC-16/XMODEM, by which a cluster assigns keys to slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let layout = Layout::new("justonce");
        // CLUSTER KEYSLOT {justonce:00}
        assert_eq!(layout.slot(0), crc16(b"justonce:00") % SLOTS);
    }

    #[test]
    fn a_key_names_its_bucket() {
        let id = RecordId::from_bytes([0x3f; 32]);
        let layout = Layout::new("p");
        let written = |key: Key<'_>| {
            let args = key.to_redis_args();
            assert_eq!(args.iter().map(Vec::len).collect::<Vec<_>>(), [key.len()]);
            args.concat()
        };
        assert_eq!(written(layout.record(&id)), [b"{p:3f}r", id.as_bytes().as_slice()].concat());
        assert_eq!(written(layout.index(bucket(&id))), b"{p:3f}i");
        assert_eq!(written(layout.fence(Some(0x0a))), b"{p:0a}f");
        assert_eq!(written(layout.fence(None)), b"{p:}f");
        assert_eq!(written(layout.nothing(0x0a)), b"{p:0a}n");
    }
}
