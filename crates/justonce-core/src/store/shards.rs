//! Tables of records in shards, for backends that keep some in memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::record_id::RecordId;

/// How many shards: enough that two of a few dozen cores rarely meet.
const SHARDS: usize = 64;

/// A map by record name. Names are hashes already, so they are not hashed again.
pub type IdMap<T> = HashMap<RecordId, T, BuildHasherDefault<IdHasher>>;

/// Takes the first eight bytes of a record's name as its hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    /// The length of the name, which is always the same.
    fn write_usize(&mut self, _: usize) {}
}

/// A table behind several locks, so that callers on several cores do not queue.
#[derive(Debug)]
pub struct Shards<T> {
    first: Mutex<T>,
    rest: Box<[Mutex<T>]>,
}

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        Self { first: Mutex::default(), rest: (1..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl<T> Shards<T> {
    /// Locks the shard of a record. A panic elsewhere does not close it: shards change only by
    /// whole steps.
    pub fn of(&self, id: &RecordId) -> MutexGuard<'_, T> {
        let [.., last] = id.as_bytes();
        self.at(usize::from(*last))
    }

    /// Locks a shard by its number. Behind the last one the first follows.
    pub fn at(&self, number: usize) -> MutexGuard<'_, T> {
        let shard = match number % SHARDS {
            0 => &self.first,
            at => self.rest.get(at - 1).unwrap_or(&self.first),
        };
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks one shard after the other.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        (0..SHARDS).map(|number| self.at(number))
    }
}
