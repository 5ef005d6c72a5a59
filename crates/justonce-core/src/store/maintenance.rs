//! The port for those who run a store: look into it, count it, keep it clean.

use std::future::Future;
use std::time::Duration;

use crate::claim::Fence;
use crate::clock::Timestamp;
use crate::error::StoreResult;
use crate::key::Key;
use crate::protocol::{Entry, StateName};
use crate::record_id::RecordId;
use crate::scope::Scope;
use crate::store::Health;

/// The most records one page may hold.
pub const MAX_PAGE: usize = 1000;

/// A store that can be looked into, counted and kept clean.
pub trait Maintenance: Send + Sync + 'static {
    /// One page of the records that a query asks for, in the order of their names. A record that
    /// cannot be read stops nothing: it is in [`Page::damaged`], whatever the query asks for.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn list(&self, query: &ListQuery) -> impl Future<Output = StoreResult<Page>> + Send;

    /// How many records there are in each state as it is stored, and how many bytes they take.
    ///
    /// # Errors
    ///
    /// If the store cannot tell.
    fn stats(&self) -> impl Future<Output = StoreResult<Stats>> + Send;

    /// Does what time demands to at most `limit` records: ends retentions, removes old
    /// tombstones, holds lapsed claims. Blocks no step for long. A record that cannot be read is
    /// left as it is, and counted.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    fn sweep(&self, limit: usize) -> impl Future<Output = StoreResult<SweepReport>> + Send;

    /// Whether the store can take a step now.
    ///
    /// # Errors
    ///
    /// If it cannot, with the reason.
    fn ready(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// What operators should know also while the store is ready: damaged records and warnings.
    /// Nothing, unless a store has something to tell. A decorator asks the store inside.
    ///
    /// # Errors
    ///
    /// If the store cannot tell.
    fn health(&self) -> impl Future<Output = StoreResult<Health>> + Send {
        async { Ok(Health::default()) }
    }
}

/// Which records to list.
///
/// ```
/// use justonce_core::store::ListQuery;
/// use justonce_core::StateName;
/// use std::time::Duration;
///
/// // The default: the first hundred records.
/// let all = ListQuery::default();
/// // Customised: what has been unknown for an hour.
/// let stuck = ListQuery {
///     state: Some(StateName::Unknown),
///     unchanged_for: Some(Duration::from_secs(3600)),
///     ..ListQuery::default()
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Only records in this state at the present time.
    pub state: Option<StateName>,
    /// Only records whose scope has all parts of this one.
    pub scope: Option<Scope>,
    /// Only records that have not changed for this long.
    pub unchanged_for: Option<Duration>,
    /// At most this many, and never more than [`MAX_PAGE`].
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    /// Only this record, whatever `after` says: found at once, however many records there are.
    pub only: Option<RecordId>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { state: None, scope: None, unchanged_for: None, limit: 100, after: None, only: None }
    }
}

/// Where a page ended. The next page begins behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub RecordId);

impl Cursor {
    /// The place right before a record, so that a page can begin with it; nothing if that is the
    /// beginning.
    #[must_use]
    pub fn before(id: RecordId) -> Option<Self> {
        let mut bytes = *id.as_bytes();
        for byte in bytes.iter_mut().rev() {
            let (less, borrowed) = byte.overflowing_sub(1);
            *byte = less;
            if !borrowed {
                return Some(Self(RecordId::from_bytes(bytes)));
            }
        }
        None
    }
}

/// Some of the records that a query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The records.
    pub records: Vec<Summary>,
    /// Where to go on; nothing at the end. A page may be short, even empty, and still have a next
    /// one: stores look at a bounded number of records for each.
    pub next: Option<Cursor>,
    /// Records on the way that could not be read, and so may be among those asked for. They do not
    /// count towards the page size.
    pub damaged: Vec<RecordId>,
}

/// One record in a list: no outcome, no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The record's name.
    pub id: RecordId,
    /// Its state at the time of listing.
    pub state: StateName,
    /// The fence of the last claim.
    pub fence: Fence,
    /// Whose operation it is; nothing for tombstones.
    pub scope: Option<Scope>,
    /// Its key; nothing for tombstones.
    pub key: Option<Key>,
    /// How often it was claimed; 0 for tombstones.
    pub attempt: u32,
    /// When it was first begun; for tombstones, when the retention ended.
    pub created_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// When its retention, or its tombstone, ends.
    pub expires_at: Option<Timestamp>,
}

impl ListQuery {
    /// The page size, within bounds.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// The summary of an entry if the query asks for it. What time has already ended is not
    /// listed.
    #[must_use]
    pub fn matches(&self, id: RecordId, entry: &Entry, now: Timestamp) -> Option<Summary> {
        if self.only.is_some_and(|only| only != id) {
            return None;
        }
        let summary = summary(id, entry, crate::protocol::state_at(entry, now))?;
        if self.state.is_some_and(|wanted| wanted != summary.state) {
            return None;
        }
        if let Some(filter) = &self.scope
            && !summary.scope.as_ref().is_some_and(|scope| scope.is_within(filter))
        {
            return None;
        }
        if self.unchanged_for.is_some_and(|age| now.since(summary.changed_at) < age) {
            return None;
        }
        Some(summary)
    }
}

fn summary(id: RecordId, entry: &Entry, state: StateName) -> Option<Summary> {
    match (entry, state) {
        (_, StateName::Absent) => None,
        (Entry::Record(record), state) => Some(Summary {
            id,
            state,
            fence: record.fence,
            scope: Some(record.subject.scope.clone()),
            key: Some(record.subject.key.clone()),
            attempt: record.attempt,
            created_at: record.subject.created_at,
            changed_at: record.changed_at,
            expires_at: entry.expires_at(),
        }),
        (Entry::Tombstone(tombstone), state) => Some(Summary {
            id,
            state,
            fence: tombstone.fence,
            scope: None,
            key: None,
            attempt: 0,
            created_at: tombstone.since,
            changed_at: tombstone.since,
            expires_at: Some(tombstone.until),
        }),
    }
}

/// Counts and bytes by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Claims.
    pub in_progress: StateStats,
    /// Outcomes.
    pub completed: StateStats,
    /// Failures.
    pub failed: StateStats,
    /// What was released after earlier attempts, or by a resolution.
    pub released: StateStats,
    /// Unknown outcomes.
    pub unknown: StateStats,
    /// Tombstones.
    pub tombstone: StateStats,
}

/// Counts and bytes of one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateStats {
    /// How many records.
    pub count: u64,
    /// How many bytes they take, encoded.
    pub bytes: u64,
}

impl Stats {
    /// The figures of one state; nothing for [`StateName::Absent`].
    #[must_use]
    pub const fn of(&self, state: StateName) -> Option<&StateStats> {
        match state {
            StateName::Absent => None,
            StateName::InProgress => Some(&self.in_progress),
            StateName::Completed => Some(&self.completed),
            StateName::Failed => Some(&self.failed),
            StateName::Released => Some(&self.released),
            StateName::Unknown => Some(&self.unknown),
            StateName::Tombstone => Some(&self.tombstone),
        }
    }

    /// The figures of one state, to change them.
    pub const fn of_mut(&mut self, state: StateName) -> Option<&mut StateStats> {
        match state {
            StateName::Absent => None,
            StateName::InProgress => Some(&mut self.in_progress),
            StateName::Completed => Some(&mut self.completed),
            StateName::Failed => Some(&mut self.failed),
            StateName::Released => Some(&mut self.released),
            StateName::Unknown => Some(&mut self.unknown),
            StateName::Tombstone => Some(&mut self.tombstone),
        }
    }

    /// Each state with what there is of it.
    pub fn by_state(&self) -> impl Iterator<Item = (StateName, &StateStats)> {
        StateName::ALL.into_iter().filter_map(|state| Some((state, self.of(state)?)))
    }

    /// Adds the figures of another part of the store.
    pub fn merge(&mut self, other: &Self) {
        for state in StateName::ALL {
            if let (Some(sum), Some(part)) = (self.of_mut(state), other.of(state)) {
                sum.count = sum.count.saturating_add(part.count);
                sum.bytes = sum.bytes.saturating_add(part.bytes);
            }
        }
    }

    /// Counts one record more.
    pub const fn add(&mut self, state: StateName, bytes: u64) {
        if let Some(stats) = self.of_mut(state) {
            stats.count = stats.count.saturating_add(1);
            stats.bytes = stats.bytes.saturating_add(bytes);
        }
    }

    /// Counts one record less.
    pub const fn sub(&mut self, state: StateName, bytes: u64) {
        if let Some(stats) = self.of_mut(state) {
            stats.count = stats.count.saturating_sub(1);
            stats.bytes = stats.bytes.saturating_sub(bytes);
        }
    }
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Records and tombstones removed.
    pub removed: u64,
    /// Records that became tombstones.
    pub buried: u64,
    /// The records of lapsed claims that became unknown by this sweep.
    pub held: Vec<RecordId>,
    /// Records that could not be read: they are left as they are.
    pub damaged: u64,
    /// Whether more may be waiting.
    pub more: bool,
}

impl SweepReport {
    /// How many records were changed.
    #[must_use]
    pub const fn changed(&self) -> u64 {
        self.removed + self.buried + self.held.len() as u64
    }

    /// Counts what happened to one record.
    pub fn count(&mut self, id: RecordId, done: crate::protocol::SweepDone) {
        match done {
            crate::protocol::SweepDone::Kept => {}
            crate::protocol::SweepDone::Removed => self.removed += 1,
            crate::protocol::SweepDone::Buried => self.buried += 1,
            crate::protocol::SweepDone::Held => self.held.push(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_before_a_record() {
        let id = |hex: &str| RecordId::parse(&format!("{hex:0<64}")).unwrap();
        let before = RecordId::parse(&format!("11{}", "f".repeat(62))).unwrap();
        assert_eq!(Cursor::before(id("12")), Some(Cursor(before)));
        assert_eq!(Cursor::before(id("00")), None);
    }
}
