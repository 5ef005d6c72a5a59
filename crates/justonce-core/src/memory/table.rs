//! The records of a memory store.

use std::collections::hash_map::Entry as MapEntry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::claim::Fence;
use crate::clock::{Clock, Timestamp};
use crate::protocol::{
    Action, Answer, Change, ClaimEnd, Decision, ends_claim, is_running, transition,
};
use crate::record_id::RecordId;
use crate::store::{IdMap, Shards, Stored, Waiters};

/// A store in memory.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_core::{ManualClock, Timestamp};
/// use std::time::SystemTime;
///
/// // For tests: time stands still until it is advanced.
/// let test = MemoryStore::new(ManualClock::default());
/// // For use: any clock of yours.
/// # #[expect(clippy::disallowed_methods, reason = "the example shows how to inject it")]
/// let store = MemoryStore::new(|| Timestamp::from(SystemTime::now()));
/// ```
pub struct MemoryStore {
    clock: Box<dyn Clock>,
    fences: AtomicU64,
    /// Slots lie apart: a table that grows moves only where they are.
    pub(super) shards: Shards<IdMap<Box<Slot>>>,
}

/// One record and those who wait for it.
pub(super) struct Slot {
    pub(super) stored: Stored,
    waiters: Option<Arc<Waiters<Option<ClaimEnd>>>>,
}

impl Slot {
    /// Carries a decision out, and wakes those who wait for a claim that it ends. Whether the
    /// record is still kept, and the answer.
    fn change(&mut self, decision: Decision, now: Timestamp) -> (bool, Answer) {
        let before = &self.stored.entry;
        let ended = match &decision.change {
            Change::Keep => false,
            Change::Put(after) => ends_claim(before, Some(after)),
            Change::Remove => ends_claim(before, None),
        };
        let (kept, answer) = decision.carry_out_in(&mut self.stored);
        if ended && let Some(waiters) = self.waiters.take() {
            waiters
                .end(Some(&self.stored.entry).filter(|_| kept).and_then(|e| ClaimEnd::of(e, now)));
        }
        (kept, answer)
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(clock: impl Clock) -> Self {
        Self { clock: Box::new(clock), fences: AtomicU64::new(0), shards: Shards::default() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes one step under the shard's lock.
    pub(super) fn step(&self, id: RecordId, action: &Action) -> Answer {
        let mut shard = self.shards.of(&id);
        let now = self.clock.now();
        let fresh = match action {
            Action::Begin(_) => Fence::new(self.fences.fetch_add(1, Ordering::Relaxed) + 1),
            _ => Fence::NONE,
        };
        match shard.entry(id) {
            MapEntry::Vacant(place) => {
                let (after, answer) = transition(None, action, now, fresh).carry_out(None);
                if let Some(stored) = after {
                    place.insert(Box::new(Slot { stored, waiters: None }));
                }
                answer
            }
            MapEntry::Occupied(mut place) => {
                let slot = place.get_mut();
                let decision = transition(Some(&slot.stored.entry), action, now, fresh);
                let (kept, answer) = slot.change(decision, now);
                if !kept {
                    place.remove();
                }
                answer
            }
        }
    }

    /// Those who wait for the claim with this fence, if it is running.
    pub(super) fn waiting_for(
        &self,
        id: &RecordId,
        fence: Fence,
    ) -> Option<Arc<Waiters<Option<ClaimEnd>>>> {
        let mut shard = self.shards.of(id);
        let now = self.clock.now();
        let slot = shard.get_mut(id)?;
        is_running(&slot.stored.entry, fence, now)
            .then(|| Arc::clone(slot.waiters.get_or_insert_default()))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
