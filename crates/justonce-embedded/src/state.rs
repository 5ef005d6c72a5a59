//! What the callers and the writer thread share.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use justonce_core::store::{DamageLog, IdHasher, IdMap, Shards, Stats, Stored, Waiters};
use justonce_core::{
    Action, ClaimEnd, Clock, Decision, Entry, Fence, RecordId, State as RecordState, StoreError,
    StoreErrorKind, StoreResult, Timestamp, transition,
};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::bounds::{Bounded, Bounds};
use crate::clock_floor;
use crate::commit::Ticket;
use crate::disk::Disk;
use crate::live_order::LiveOrder;
use crate::reads::Reads;
use crate::restored::{self, Losses, Lost};
use crate::rows::PendingRows;
use crate::write::DiskState;

/// How many fences are reserved on disk ahead of those given. Each opening skips as many, and a
/// restore counts on it that these are not more than pass in the time that an opening takes.
pub(crate) const RESERVED_FENCES: u64 = 1 << 16;

/// What the callers and the writer thread share.
pub(crate) struct State {
    pub(crate) disk: Disk,
    pub(crate) table: Shards<Shard>,
    pub(crate) hot: HotCache,
    /// The names of what is in the table, in order.
    pub(crate) order: LiveOrder,
    pub(crate) bounded: Bounded,
    pub(crate) fences: Fences,
    /// The callers' rows that the storage engine does not have yet.
    pub(crate) rows: PendingRows,
    pub(crate) stopped: OnceLock<Arc<str>>,
    /// The store is being closed.
    closing: AtomicBool,
    /// How single records are read from disk.
    pub(crate) reads: Reads,
    /// Called before each of those reads.
    #[cfg(test)]
    pub(crate) before_read: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Records that could not be read.
    pub(crate) damage: DamageLog,
    /// Those that may be unsettled: they are named further on, for when they can be read again.
    pub(crate) unread: OnceLock<Vec<RecordId>>,
    time: Time,
}

/// The store's time.
pub(crate) struct Time {
    pub(crate) clock: Box<dyn Clock>,
    /// How far it is ahead of the clock: it never lies before what it was when the store was last
    /// open.
    pub(crate) ahead: Duration,
    /// When it was last brought back to the clock; zero if it never was.
    pub(crate) clock_reset_at: Timestamp,
    /// What the store may have lost when it was restored from backups.
    pub(crate) losses: Losses,
}

impl Time {
    fn now(&self) -> Timestamp {
        self.clock.now().after(self.ahead)
    }
}

/// A part of the records in memory.
#[derive(Default)]
pub(crate) struct Shard {
    /// What is unsettled, or settled but not yet on disk.
    pub(crate) live: IdMap<Live>,
    /// Grows when an entry leaves `live`, so that a reader notices what it missed.
    pub(crate) left: u64,
    /// How many settled records there are, as far as the decisions made so far go: those that came
    /// to be here. The first shard has all that there were when the store was opened.
    pub(crate) done: Stats,
    /// Those that are not there any more. A shard may have lost more than it got.
    pub(crate) undone: Stats,
}

/// A record in memory.
pub(crate) struct Live {
    /// The record; nothing if it is gone, and its removal is not yet in the storage engine.
    pub(crate) row: Option<Arc<Row>>,
    /// Where it is on disk once the queue is written.
    pub(crate) on_disk: DiskState,
    /// Memory is ahead of the disk, and of the queue.
    pub(crate) dirty: bool,
    /// The last write that callers must wait for.
    pub(crate) pending: Option<Ticket>,
    /// Numbers the changes of this record, so that the writer knows whether it wrote the last.
    pub(crate) change: u64,
    /// The last change that was queued and is not yet in the storage engine. Until it is, the
    /// engine has something older, and the entry stays.
    pub(crate) queued: Option<u64>,
    pub(crate) waiters: Option<Arc<ClaimWaiters>>,
}

/// Those who wait for the end of a claim. They get what it ended with, if a begin could not claim
/// the operation again, and the write that must be durable before they may know.
pub(crate) type ClaimWaiters = Waiters<(Option<ClaimEnd>, Option<Ticket>)>;

/// A record with its size on disk.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) stored: Stored,
    pub(crate) bytes: u32,
}

/// Recently used settled records.
pub(crate) type HotCache = Cache<RecordId, Arc<Row>, ByBytes, BuildHasherDefault<IdHasher>>;

/// Weighs a cached record by the memory it takes.
#[derive(Clone, Debug)]
pub(crate) struct ByBytes;

/// What a cached record takes beside its outcome: names, notes and the cache's own bookkeeping.
const CACHED_OVERHEAD_BYTES: u64 = 512;

impl Weighter<RecordId, Arc<Row>> for ByBytes {
    fn weight(&self, _: &RecordId, row: &Arc<Row>) -> u64 {
        u64::from(row.bytes) + CACHED_OVERHEAD_BYTES
    }
}

/// Gives fences, each once, also across restarts.
#[derive(Debug)]
pub(crate) struct Fences {
    next: AtomicU64,
    reserved: AtomicU64,
}

impl Fences {
    pub(crate) const fn starting_at(next: u64, reserved: u64) -> Self {
        Self { next: AtomicU64::new(next), reserved: AtomicU64::new(reserved) }
    }

    /// The next fence, if the disk knows that it may be given.
    pub(crate) fn allocate(&self) -> Option<Fence> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.reserved.load(Ordering::Acquire)).then(|| Fence::new(number))
    }

    /// How far a batch that is being written may reserve.
    pub(crate) fn to_reserve(&self) -> u64 {
        self.next.load(Ordering::Relaxed).saturating_add(RESERVED_FENCES)
    }

    /// The reservation is on disk.
    pub(crate) fn reserved(&self, up_to: u64) {
        self.reserved.fetch_max(up_to, Ordering::Release);
    }
}

impl State {
    pub(crate) fn new(
        disk: Disk,
        time: Time,
        hot_bytes: u64,
        bounds: Bounds,
        fences: Fences,
    ) -> Self {
        let items = usize::try_from(hot_bytes / (2 * CACHED_OVERHEAD_BYTES)).unwrap_or(usize::MAX);
        Self {
            disk,
            table: Shards::default(),
            hot: Cache::with(
                items,
                hot_bytes,
                ByBytes,
                BuildHasherDefault::default(),
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            order: LiveOrder::default(),
            bounded: Bounded::new(bounds),
            fences,
            rows: PendingRows::default(),
            stopped: OnceLock::new(),
            closing: AtomicBool::new(false),
            reads: Reads::default(),
            #[cfg(test)]
            before_read: OnceLock::new(),
            damage: DamageLog::default(),
            unread: OnceLock::new(),
            time,
        }
    }

    /// The store's time. It never lies before what it was when the store was last open.
    pub(crate) fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// The machine's time, whatever the store's is.
    pub(crate) fn clock_now(&self) -> Timestamp {
        self.time.clock.now()
    }

    /// When the store's time was last brought back to the clock; zero if it never was.
    pub(crate) fn clock_reset_at(&self) -> Timestamp {
        self.time.clock_reset_at
    }

    /// The rules, at the store's time.
    pub(crate) fn decide(&self, entry: Option<&Entry>, action: &Action, fresh: Fence) -> Decision {
        let now = self.now();
        let mut decision = transition(entry, action, now, fresh);
        if self.time.clock_reset_at != Timestamp::ZERO {
            let reset_at = self.time.clock_reset_at;
            decision = clock_floor::refuse_older(decision, entry, action, now, reset_at);
        }
        if !self.time.losses.is_empty() {
            let lost = Lost { losses: &self.time.losses, clock_now: self.clock_now() };
            decision = restored::hold_lost(decision, entry, action, now, fresh, lost);
        }
        decision
    }

    /// Whoever holds the lock of a shard is done before the shard is looked through for what must
    /// be written; whoever comes later is refused.
    pub(crate) fn refuse_writes(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Refuses what would write once the store has stopped, or is being closed.
    pub(crate) fn writable(&self) -> StoreResult<()> {
        match self.stopped.get() {
            None if self.closing.load(Ordering::Acquire) => Err(closed()),
            None => Ok(()),
            Some(why) => Err(StoreError::not_applied(
                StoreErrorKind::Stopped,
                format!("the embedded store has stopped and refuses to write: {why}"),
            )),
        }
    }

    /// Stops the store. Whatever else fails later, the first reason is the one to tell.
    pub(crate) fn stop(&self, why: &str) {
        let _ = self.stopped.set(Arc::from(why));
    }

    /// A settled record, from the cache or from disk.
    pub(crate) fn settled(&self, id: &RecordId) -> StoreResult<Option<Found>> {
        match self.cached(id) {
            Some(found) => Ok(Some(found)),
            None => self.read(id),
        }
    }

    /// A settled record, from the cache.
    pub(crate) fn cached(&self, id: &RecordId) -> Option<Found> {
        self.hot.get(id).map(|row| Found { row, cached: true })
    }

    /// A settled record, from disk.
    pub(crate) fn read(&self, id: &RecordId) -> StoreResult<Option<Found>> {
        let found = self.reads.timed(|| {
            #[cfg(test)]
            self.before_read.get().into_iter().for_each(|hook| hook());
            self.record_on_disk(id)
        })?;
        Ok(found.map(|(stored, bytes)| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            Found { row: Arc::new(Row { stored, bytes }), cached: false }
        }))
    }

    /// A record as the disk has it, its back-off counted from the last reset of the clock. One that
    /// is damaged is remembered.
    pub(crate) fn record_on_disk(&self, id: &RecordId) -> StoreResult<Option<(Stored, usize)>> {
        let mut found = self.disk.record(id).inspect_err(|error| {
            if error.kind() == StoreErrorKind::Damaged {
                self.note_damage(*id, error);
            }
        })?;
        if let Some((stored, _)) = &mut found {
            self.count_from_reset(stored);
        }
        Ok(found)
    }

    /// Counts the back-off of a record that was read from disk from the last reset of the clock.
    pub(crate) fn count_from_reset(&self, stored: &mut Stored) {
        if self.time.clock_reset_at != Timestamp::ZERO {
            clock_floor::count_from_reset(stored, self.time.clock_reset_at, self.now());
        }
    }

    /// Remembers a record that cannot be read, and says so once.
    pub(crate) fn note_damage(&self, id: RecordId, error: &StoreError) {
        if self.damage.note(id) {
            tracing::error!(target: "justonce::store", record = %id, %error, "a record is damaged");
        }
    }

    /// Keeps a record that was read from disk at hand, unless it has changed since.
    pub(crate) fn remember(&self, id: &RecordId, row: &Arc<Row>, left: u64) {
        let shard = self.table.of(id);
        if shard.left == left && !shard.live.contains_key(id) {
            self.hot.insert(*id, Arc::clone(row));
        }
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::not_applied(StoreErrorKind::Stopped, "the embedded store is closed")
}

/// A settled record and where it was found.
pub(crate) struct Found {
    pub(crate) row: Arc<Row>,
    pub(crate) cached: bool,
}

/// Whether an entry is settled: it changes only by time, by an operator, or by the next begin, so
/// it lies on disk and not in memory. What waits for a retry is settled too: an outage leaves as
/// many of those as there are requests while it lasts.
pub(crate) fn is_settled(entry: &Entry) -> bool {
    match entry {
        Entry::Tombstone(_) => true,
        Entry::Record(record) => {
            matches!(record.state, RecordState::Completed(_) | RecordState::Failed(_))
        }
    }
}
