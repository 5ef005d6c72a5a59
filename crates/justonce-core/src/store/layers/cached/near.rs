//! A cache in this process.

use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::port::{CachedOutcome, Lookup, OutcomeCache, PutPermit};
use crate::clock::{Clock, TimerClock, Timestamp};
use crate::error::StoreResult;
use crate::fingerprint::Fingerprint;
use crate::outcome::{Body, Outcome};
use crate::record_id::RecordId;
use crate::store::{IdHasher, Shards};

/// How many bytes a near cache may take by default.
pub const NEAR_BYTES: u64 = 32 * 1024 * 1024;
/// How long a near cache answers without asking the store, by default: what was erased elsewhere is
/// replayed here for at most this long.
pub const NEAR_AGE: Duration = Duration::from_secs(5);

/// What an entry takes beside its outcome's bytes, about: names, moments, tables.
const ENTRY_BYTES: u64 = 320;
/// What a header takes beside its bytes, about.
const HEADER_BYTES: u64 = 64;
/// The size of an entry for which the tables are made; they grow if entries are smaller.
const EXPECTED_ENTRY_BYTES: u64 = 4096;

/// A cache in this process, bounded in bytes and in age. Clones are the same cache.
///
/// Erased or expired elsewhere, an outcome is replayed here until the age is over; through the
/// same [`Cached`](super::Cached) it is dropped at once.
///
/// ```
/// use justonce_core::store::NearCache;
/// use std::time::Duration;
///
/// // The default: 32 MiB, five seconds.
/// let near = NearCache::default();
/// // Customised: a large cache whose users accept a minute.
/// let large = NearCache::builder().bytes(1 << 30).age(Duration::from_secs(60)).build();
/// assert_eq!(large.stats().hits, 0);
/// ```
#[derive(Clone)]
pub struct NearCache(Arc<Inner>);

struct Inner {
    entries: Cache<RecordId, Near, ByBytes, BuildHasherDefault<IdHasher>>,
    /// Grows with everything that is forgotten, so that a late put notices.
    turns: Shards<u64>,
    age: Duration,
    clock: Box<dyn Clock>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// An outcome with its moments.
#[derive(Clone)]
struct Near {
    fingerprint: Fingerprint,
    outcome: Outcome,
    failed: bool,
    expires_at: Timestamp,
    fresh_until: Timestamp,
}

/// How a near cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearStats {
    /// How often it answered.
    pub hits: u64,
    /// How often it could not.
    pub misses: u64,
    /// How many outcomes it holds.
    pub outcomes: u64,
    /// How many bytes they take, about.
    pub bytes: u64,
}

impl NearCache {
    /// Starts from the defaults.
    pub fn builder() -> NearCacheBuilder {
        NearCacheBuilder { bytes: NEAR_BYTES, age: NEAR_AGE, clock: None }
    }

    /// How it has done so far.
    #[must_use]
    pub fn stats(&self) -> NearStats {
        NearStats {
            hits: self.0.hits.load(Ordering::Relaxed),
            misses: self.0.misses.load(Ordering::Relaxed),
            outcomes: self.0.entries.len() as u64,
            bytes: self.0.entries.weight(),
        }
    }

    fn look(&self, id: &RecordId, asked: &Fingerprint) -> Lookup {
        let now = self.0.clock.now();
        let near = self.0.entries.get(id).filter(|near| now < near.fresh_until);
        let other = match near {
            Some(near) if near.fingerprint == *asked => {
                self.0.hits.fetch_add(1, Ordering::Relaxed);
                return Lookup::Found(near.at(now));
            }
            found => found.is_some(),
        };
        self.0.misses.fetch_add(1, Ordering::Relaxed);
        let permit = PutPermit { at: now, turn: *self.0.turns.of(id) };
        if other { Lookup::Other(permit) } else { Lookup::Nothing(permit) }
    }

    fn keep(&self, id: &RecordId, kept: &CachedOutcome, permit: PutPermit) {
        let expires_at = permit.at.after(kept.left);
        let fresh_until = permit.at.after(self.0.age.min(kept.left));
        if self.0.clock.now() >= fresh_until {
            return;
        }
        let Some(outcome) = copied(&kept.outcome) else {
            return;
        };
        let CachedOutcome { fingerprint, failed, .. } = *kept;
        let near = Near { fingerprint, outcome, failed, expires_at, fresh_until };
        // Held until the entry is in, so that a forget comes either before or after the whole.
        let turn = self.0.turns.of(id);
        if *turn == permit.turn {
            self.0.entries.insert(*id, near);
        }
    }

    fn drop_entry(&self, id: &RecordId) {
        let mut turn = self.0.turns.of(id);
        *turn = turn.wrapping_add(1);
        self.0.entries.remove(id);
    }
}

impl Default for NearCache {
    fn default() -> Self {
        Self::builder().build()
    }
}

impl OutcomeCache for NearCache {
    async fn get(&self, id: &RecordId, asked: &Fingerprint) -> StoreResult<Lookup> {
        Ok(self.look(id, asked))
    }

    async fn put(&self, id: &RecordId, kept: &CachedOutcome, permit: PutPermit) -> StoreResult<()> {
        self.keep(id, kept, permit);
        Ok(())
    }

    async fn forget(&self, id: &RecordId) -> StoreResult<()> {
        self.drop_entry(id);
        Ok(())
    }
}

impl fmt::Debug for NearCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearCache")
            .field("age", &self.0.age)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Near {
    fn at(self, now: Timestamp) -> CachedOutcome {
        CachedOutcome {
            fingerprint: self.fingerprint,
            outcome: self.outcome,
            failed: self.failed,
            left: self.expires_at.since(now),
        }
    }
}

/// The same outcome in memory of its own: the one that was put may be a small part of a large
/// buffer, which would live as long as the entry and is not counted.
fn copied(outcome: &Outcome) -> Option<Outcome> {
    let mut buffer = BytesMut::with_capacity(usize::try_from(value_bytes(outcome)).ok()?);
    let mut own = |bytes: &Bytes| {
        buffer.extend_from_slice(bytes);
        buffer.split().freeze()
    };
    let mut copy = Outcome::builder();
    if let Some(status) = outcome.status() {
        copy = copy.status(status);
    }
    for header in outcome.headers() {
        copy = copy.header(header.name.clone(), own(&header.value));
    }
    let copy = match outcome.stored_body() {
        Body::Whole(bytes) => copy.body(own(bytes)),
        Body::TooLarge(size) => copy.too_large(*size),
    };
    copy.build().ok()
}

/// The bytes of an outcome's body and of its headers' values.
fn value_bytes(outcome: &Outcome) -> u64 {
    let body = outcome.body().map_or(0, <[u8]>::len);
    let values: usize = outcome.headers().iter().map(|header| header.value.len()).sum();
    body.saturating_add(values) as u64
}

/// Weighs entries by the bytes they take.
#[derive(Clone, Copy, Debug)]
struct ByBytes;

impl Weighter<RecordId, Near> for ByBytes {
    fn weight(&self, _: &RecordId, near: &Near) -> u64 {
        let headers = near.outcome.headers();
        let names: u64 = headers.iter().map(|header| header.name.len() as u64 + HEADER_BYTES).sum();
        ENTRY_BYTES + names + value_bytes(&near.outcome)
    }
}

/// Collects the settings of a [`NearCache`], starting from the defaults.
#[must_use = "a builder does nothing until `build`"]
pub struct NearCacheBuilder {
    bytes: u64,
    age: Duration,
    clock: Option<Box<dyn Clock>>,
}

impl NearCacheBuilder {
    /// How many bytes it may take, about. Default: [`NEAR_BYTES`].
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// How long it answers without asking the store. Default: [`NEAR_AGE`].
    pub const fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Another clock, for tests. Default: tokio's, which no step of the wall clock moves.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Makes the cache.
    #[must_use]
    pub fn build(self) -> NearCache {
        let items = usize::try_from(self.bytes / EXPECTED_ENTRY_BYTES).unwrap_or(usize::MAX);
        let clock =
            self.clock.unwrap_or_else(|| Box::new(TimerClock::starting_at(Timestamp::ZERO)));
        NearCache(Arc::new(Inner {
            entries: Cache::with(
                items,
                self.bytes,
                ByBytes,
                BuildHasherDefault::default(),
                DefaultLifecycle::default(),
            ),
            turns: Shards::default(),
            age: self.age,
            clock,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }))
    }
}

impl fmt::Debug for NearCacheBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearCacheBuilder")
            .field("bytes", &self.bytes)
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}
