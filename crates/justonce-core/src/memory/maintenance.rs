//! Looking into, counting and cleaning a memory store.

use super::MemoryStore;
use crate::codec;
use crate::error::StoreResult;
use crate::protocol::{Action, Answer, SweepDone, transition};
use crate::record_id::RecordId;
use crate::store::{Cursor, ListQuery, Maintenance, Page, Stats, SweepReport};

impl Maintenance for MemoryStore {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        let now = self.now();
        if let Some(id) = query.only {
            let shard = self.shards.of(&id);
            let found = shard.get(&id).and_then(|slot| query.matches(id, &slot.stored.entry, now));
            return Ok(Page { records: found.into_iter().collect(), ..Page::default() });
        }
        let mut found = Vec::new();
        for shard in self.shards.each() {
            found.extend(
                shard
                    .iter()
                    .filter(|(id, _)| query.after.is_none_or(|Cursor(after)| **id > after))
                    .filter_map(|(id, slot)| query.matches(*id, &slot.stored.entry, now)),
            );
        }
        found.sort_by_key(|summary| summary.id);
        let more = found.len() > query.page_size();
        found.truncate(query.page_size());
        let next = found.last().filter(|_| more).map(|summary| Cursor(summary.id));
        Ok(Page { records: found, next, ..Page::default() })
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let mut stats = Stats::default();
        for shard in self.shards.each() {
            for (id, slot) in shard.iter() {
                let bytes = codec::encode(id, &slot.stored).len() as u64;
                stats.add(slot.stored.entry.state_name(), bytes);
            }
        }
        Ok(stats)
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let due = self.due(limit.saturating_add(1));
        let mut report = SweepReport { more: due.len() > limit, ..SweepReport::default() };
        for id in due.into_iter().take(limit) {
            if let Answer::Swept(done) = self.step(id, &Action::Sweep) {
                report.count(id, done);
            }
        }
        Ok(report)
    }

    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }
}

impl MemoryStore {
    /// Some records for which time demands something.
    fn due(&self, limit: usize) -> Vec<RecordId> {
        let now = self.now();
        let mut due = Vec::new();
        for shard in self.shards.each() {
            for (id, slot) in shard.iter() {
                let entry = Some(&slot.stored.entry);
                let decision = transition(entry, &Action::Sweep, now, Default::default());
                if decision.answer != Answer::Swept(SweepDone::Kept) {
                    due.push(*id);
                }
                if due.len() >= limit {
                    return due;
                }
            }
        }
        due
    }
}
