//! What a node remembers of records that it need not look into again.

use std::collections::HashMap;

use justonce_core::store::Summary;
use justonce_core::{Fence, RecordId, StateName, Timestamp};
use tokio::time::Instant;

/// The most records that are remembered. Those that find no room are looked into in every round
/// that passes by, and are not tried again before others have made room.
const MAX_REMEMBERED: usize = 100_000;

/// The way through all records of one kind in one state, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lap {
    pub(super) kind: usize,
    pub(super) state: StateName,
    pub(super) number: u64,
}

/// What is known of a record as long as it does not change.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Each claim has another fence, and each write within a claim another time.
    version: (Fence, Timestamp),
    /// When it is looked into again; never, if nothing.
    due: Option<Instant>,
    is_parked: bool,
    lap: Lap,
}

/// What a node remembers of records that it need not look into again.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<RecordId, Entry>);

impl Known {
    /// When a record is due that has not changed since it was looked into; nothing if it is new or
    /// has changed.
    pub(super) fn due(&mut self, summary: &Summary, lap: Lap) -> Option<Option<Instant>> {
        let entry = self.0.get_mut(&summary.id)?;
        entry.lap = lap;
        (entry.version == version(summary)).then_some(entry.due)
    }

    /// This record is not read before it is due or changes.
    pub(super) fn remember(
        &mut self,
        summary: &Summary,
        lap: Lap,
        due: Option<Instant>,
        is_parked: bool,
    ) {
        if self.0.len() < MAX_REMEMBERED || self.0.contains_key(&summary.id) {
            let entry = Entry { version: version(summary), due, is_parked, lap };
            self.0.insert(summary.id, entry);
        }
    }

    pub(super) fn forget(&mut self, id: RecordId) {
        self.0.remove(&id);
    }

    /// A lap is over: what was not met in it is not there any more.
    pub(super) fn forget_before(&mut self, lap: Lap) {
        let is_gone = |of: Lap| Lap { number: lap.number, ..of } == lap && of.number < lap.number;
        self.0.retain(|_, entry| !is_gone(entry.lap));
    }

    /// How many are parked.
    pub(super) fn parked(&self) -> usize {
        self.0.values().filter(|entry| entry.is_parked).count()
    }
}

const fn version(summary: &Summary) -> (Fence, Timestamp) {
    (summary.fence, summary.changed_at)
}
