//! What a store may keep in memory, and what of it waits for the disk.

use std::sync::atomic::{AtomicU64, Ordering};

use justonce_core::store::{BoundUse, Stored};
use justonce_core::{Action, Entry, Record, State, StoreError, StoreErrorKind, StoreResult};

/// How much an [`EmbeddedStore`](crate::EmbeddedStore) keeps in memory beside its caches. At a
/// bound new operations are refused; those that are running can still end.
///
/// ```
/// use justonce_embedded::{Bounds, EmbeddedStore};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a");
/// // The default.
/// assert_eq!(Bounds::default().unsettled_records, 1_000_000);
///
/// // Customised: for a machine with little memory.
/// let bounds = Bounds { unsettled_bytes: 64 << 20, queued_bytes: 16 << 20, ..Bounds::default() };
/// let store = EmbeddedStore::builder(&path).bounds(bounds).open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most operations that are in progress or unknown: they lie in memory. Default: 1,000,000.
    pub unsettled_records: u64,
    /// About how much memory they may take, in bytes, with their checkpoints. Default: 1 GiB.
    pub unsettled_bytes: u64,
    /// The most writes that wait for the disk. Writes by the owners of running operations may be
    /// twice as many. Default: 100,000.
    pub queued_writes: u64,
    /// The most bytes that wait for the disk. Writes by the owners of running operations may be
    /// twice as much. Default: 256 MiB.
    pub queued_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            unsettled_records: 1_000_000,
            unsettled_bytes: 1 << 30,
            queued_writes: 100_000,
            queued_bytes: 256 << 20,
        }
    }
}

/// How much further the queue may grow by writes of owners: operations that are running can end
/// while new ones are refused.
const OWNERS_FACTOR: u64 = 2;

/// What an unsettled record takes in memory beside its names and its checkpoint: itself, its
/// policy, its notes, and its places in the table and in the order of names.
const UNSETTLED_OVERHEAD_BYTES: u64 = 1024;

/// A number of things and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Used {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Used {
    pub(crate) fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, count: u64, bytes: u64) {
        self.count.fetch_sub(count, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// One thing stands in the place of another; nothing stands for none.
    pub(crate) fn replace(&self, before: Option<u64>, after: Option<u64>) {
        if before == after {
            return;
        }
        if let Some(bytes) = after {
            self.add(bytes);
        }
        if let Some(bytes) = before {
            self.sub(1, bytes);
        }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The bounds of a store, and how much is used of each.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    pub(crate) bounds: Bounds,
    /// What is in progress or unknown.
    pub(crate) unsettled: Used,
    /// What waits for the disk, with the batch that is being written.
    pub(crate) queued: Used,
}

impl Bounded {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// Whether a write may join the queue.
    pub(crate) fn admit_write(&self, action: &Action) -> StoreResult<()> {
        let factor = if is_by_owner(action) { OWNERS_FACTOR } else { 1 };
        let (writes, bytes) = (self.queued.count(), self.queued.bytes());
        let hit = if writes >= self.bounds.queued_writes.saturating_mul(factor) {
            format!("{writes} writes wait for it (the bound `queued_writes`)")
        } else if bytes >= self.bounds.queued_bytes.saturating_mul(factor) {
            format!("{bytes} bytes wait for it (the bound `queued_bytes`)")
        } else {
            return Ok(());
        };
        let message = format!(
            "the disk does not keep up: {hit}. Try again later; if this lasts, find out what slows \
             the disk down"
        );
        Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
    }

    /// Whether one more operation may be in progress.
    pub(crate) fn admit_claim(&self) -> StoreResult<()> {
        let (records, bytes) = (self.unsettled.count(), self.unsettled.bytes());
        let hit = if records >= self.bounds.unsettled_records {
            format!(
                "{records} operations are in progress or unknown (the bound `unsettled_records`)"
            )
        } else if bytes >= self.bounds.unsettled_bytes {
            format!(
                "operations that are in progress or unknown take {bytes} bytes of memory (the \
                 bound `unsettled_bytes`)"
            )
        } else {
            return Ok(());
        };
        let message =
            format!("{hit}: resolve those that are unknown, or open the store with a higher bound");
        Err(StoreError::not_applied(StoreErrorKind::Full, message))
    }

    /// How much is used of each bound.
    pub(crate) fn used(&self) -> Vec<BoundUse> {
        let of = |name, used, limit| BoundUse { name, used, limit };
        vec![
            of("unsettled_records", self.unsettled.count(), self.bounds.unsettled_records),
            of("unsettled_bytes", self.unsettled.bytes(), self.bounds.unsettled_bytes),
            of("queued_writes", self.queued.count(), self.bounds.queued_writes),
            of("queued_bytes", self.queued.bytes(), self.bounds.queued_bytes),
        ]
    }
}

/// Whether a step is one of those by which an owner ends or continues its operation.
const fn is_by_owner(action: &Action) -> bool {
    match action {
        Action::Complete(..)
        | Action::Fail(..)
        | Action::Release(_)
        | Action::Renew(_)
        | Action::Checkpoint(..)
        | Action::Abandon(..) => true,
        Action::Begin(_)
        | Action::Peek(_)
        | Action::Resolve(..)
        | Action::Expire(_)
        | Action::Erase(_)
        | Action::Sweep => false,
    }
}

/// About how much memory an unsettled record takes; nothing for one that is settled: it is there
/// only until the storage engine has it, which the size of the log bounds.
pub(crate) fn unsettled_bytes(stored: &Stored) -> Option<u64> {
    let Entry::Record(Record { subject, state, .. }) = &stored.entry else { return None };
    let checkpoint = match state {
        State::InProgress(claim) => claim.checkpoint.as_ref(),
        State::Unknown(unknown) => unknown.checkpoint.as_ref(),
        State::Completed(_) | State::Failed(_) => return None,
    };
    let names = subject.scope.as_str().len() + subject.key.as_str().len();
    let checkpoint = checkpoint.map_or(0, |point| point.name().len() + point.data().len());
    Some(UNSETTLED_OVERHEAD_BYTES + (names + checkpoint) as u64)
}
