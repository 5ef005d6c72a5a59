//! One page of the records, from memory and from disk.
//!
//! Both have the records in the order of their names. A portion of what is in memory is taken
//! first, and then what the disk has up to the end of the portion: a record that goes from memory
//! to disk meanwhile is found in one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use justonce_core::store::{Cursor, ListQuery, Page, Summary};
use justonce_core::{Entry, RecordId, StateName, StoreErrorKind, StoreResult, Timestamp};

use crate::state::{Row, State};

/// How many records one page reads at most: it bounds the time a page takes.
const MAX_LOOKED_AT: usize = 20_000;
/// The most records in memory that are taken at once, if a page needs more than its size.
const MAX_PORTION: usize = 1024;

/// A page that is being gathered.
struct Gathering<'a> {
    state: &'a State,
    query: &'a ListQuery,
    now: Timestamp,
    /// In the order of their names.
    found: Vec<Summary>,
    damaged: Vec<RecordId>,
    seen_to: Option<RecordId>,
    looked_at: usize,
    /// How many records were taken from memory to look at.
    taken: usize,
}

/// Records in memory that follow each other.
struct Portion {
    /// What is in memory counts, whatever the disk has of it; nothing for records whose removal is
    /// on its way.
    rows: BTreeMap<RecordId, Option<Arc<Row>>>,
    /// The last of them; nothing if there are no more in memory.
    end: Option<RecordId>,
}

pub(crate) fn list(state: &State, query: &ListQuery) -> StoreResult<Page> {
    list_counted(state, query).map(|(page, _)| page)
}

/// The page, and how many records were taken or looked at for it.
fn list_counted(state: &State, query: &ListQuery) -> StoreResult<(Page, usize)> {
    let mut page = Gathering {
        state,
        query,
        now: state.now(),
        found: Vec::new(),
        damaged: Vec::new(),
        seen_to: None,
        looked_at: 0,
        taken: 0,
    };
    let ended = match query.only {
        Some(id) => page.one(id)?,
        None => page.gather(query.after.map(|Cursor(id)| id))?,
    };
    let work = page.taken + page.looked_at;
    Ok((page.finish(ended), work))
}

impl Gathering<'_> {
    /// The only record that is asked for.
    fn one(&mut self, id: RecordId) -> StoreResult<bool> {
        let live = self.state.table.of(&id).live.get(&id).map(|live| live.row.clone());
        if let Some(row) = live {
            self.see_row(id, row.as_deref());
            return Ok(true);
        }
        match self.state.settled(&id) {
            Ok(found) => self.see_row(id, found.as_ref().map(|found| &*found.row)),
            Err(error) if error.kind() == StoreErrorKind::Damaged => self.see(id, None),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Looks at all records behind `after` until the page is full. Returns whether it came to the
    /// end.
    fn gather(&mut self, mut after: Option<RecordId>) -> StoreResult<bool> {
        // What is unsettled is in memory: frequent queries for it do not read the disk.
        let is_settled =
            !matches!(self.query.state, Some(StateName::InProgress | StateName::Unknown));
        let mut count = self.query.page_size() + 1;
        loop {
            let mut portion = Portion::behind(self.state, after, count);
            self.taken += portion.rows.len();
            if is_settled && !self.merge(after, &mut portion)? {
                return Ok(false);
            }
            if !self.see_rows(&mut portion, None) {
                return Ok(false);
            }
            if portion.end.is_none() {
                return Ok(true);
            }
            after = portion.end;
            count = count.saturating_mul(2).min(MAX_PORTION);
        }
    }

    /// Looks at what is on disk behind `after` up to the end of a portion, and at what of the
    /// portion lies between. Returns whether the page has room for more.
    fn merge(&mut self, after: Option<RecordId>, portion: &mut Portion) -> StoreResult<bool> {
        for row in self.state.disk.records_after(after.as_ref()) {
            let (id, stored) = match row {
                Ok(row) => row,
                Err(error) if error.kind() == StoreErrorKind::Damaged => {
                    // What was seen of the portion is not in it any more.
                    return self.merge_by_name(self.seen_to.max(after), portion);
                }
                Err(error) => return Err(error),
            };
            if portion.end.is_some_and(|end| id > end) {
                break;
            }
            if !self.see_rows(portion, Some(id)) {
                return Ok(false);
            }
            if self.seen_to == Some(id) {
                continue;
            }
            match stored {
                Ok(mut stored) => {
                    self.state.count_from_reset(&mut stored);
                    self.see(id, Some(&stored.entry));
                }
                Err(error) if error.kind() == StoreErrorKind::Damaged => {
                    self.state.note_damage(id, &error);
                    self.see(id, None);
                }
                Err(error) => return Err(error),
            }
            if self.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where a part of the tree cannot be read, the expiry index has the names of all that is
    /// settled. Slower, and rare.
    fn merge_by_name(
        &mut self,
        after: Option<RecordId>,
        portion: &mut Portion,
    ) -> StoreResult<bool> {
        let mut names = BTreeSet::new();
        for row in self.state.disk.expired([0; 16], Timestamp::MAX) {
            let Some((_, ids)) = row? else { continue };
            let is_in_portion = |id: &RecordId| {
                after.is_none_or(|after| *id > after) && portion.end.is_none_or(|end| *id <= end)
            };
            for id in ids.into_iter().filter(is_in_portion) {
                names.insert(id);
                // The page is full before it comes to those.
                if names.len() > MAX_LOOKED_AT {
                    names.pop_last();
                }
            }
        }
        for id in names {
            if !self.see_rows(portion, Some(id)) {
                return Ok(false);
            }
            if self.seen_to == Some(id) {
                continue;
            }
            match self.state.record_on_disk(&id) {
                Ok(Some((stored, _))) => self.see(id, Some(&stored.entry)),
                // It is gone, and its row of the index not yet.
                Ok(None) => {
                    self.looked_at += 1;
                    self.seen_to = Some(id);
                }
                Err(error) if error.kind() == StoreErrorKind::Damaged => self.see(id, None),
                Err(error) => return Err(error),
            }
            if self.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks at what a portion has up to a name, or at all of it. Returns whether the page has room
    /// for more.
    fn see_rows(&mut self, portion: &mut Portion, to: Option<RecordId>) -> bool {
        while let Some(first) = portion.rows.first_entry()
            && to.is_none_or(|to| *first.key() <= to)
        {
            let (id, row) = first.remove_entry();
            self.see_row(id, row.as_deref());
            if self.is_full() {
                return false;
            }
        }
        true
    }

    fn is_full(&self) -> bool {
        self.looked_at >= MAX_LOOKED_AT || self.found.len() > self.query.page_size()
    }

    /// A record; nothing if it is gone.
    fn see_row(&mut self, id: RecordId, row: Option<&Row>) {
        self.looked_at += 1;
        self.seen_to = Some(id);
        if let Some(row) = row {
            self.found.extend(self.query.matches(id, &row.stored.entry, self.now));
        }
    }

    /// A record on disk; nothing if it cannot be read.
    fn see(&mut self, id: RecordId, entry: Option<&Entry>) {
        self.looked_at += 1;
        self.seen_to = Some(id);
        match entry {
            None => self.damaged.push(id),
            Some(entry) => self.found.extend(self.query.matches(id, entry, self.now)),
        }
    }

    fn finish(self, ended: bool) -> Page {
        let size = self.query.page_size();
        let more = !ended || self.found.len() > size;
        let mut records = self.found;
        records.truncate(size);
        let full = records.len() == size;
        let last = if full { records.last().map(|summary| summary.id) } else { self.seen_to };
        let next = last.filter(|_| more);
        // The rest comes with the next page.
        let mut damaged = self.damaged;
        damaged.retain(|id| next.is_none_or(|next| *id <= next));
        Page { records, next: next.map(Cursor), damaged }
    }
}

impl Portion {
    /// The first records in memory behind `after`, at most so many.
    fn behind(state: &State, after: Option<RecordId>, count: usize) -> Self {
        let names = state.order.behind(after, count);
        let end = names.last().copied().filter(|_| names.len() == count);
        // One that has left the table since is on disk, which is looked at afterwards.
        let row = |id: RecordId| {
            let shard = state.table.of(&id);
            shard.live.get(&id).map(|live| (id, live.row.clone()))
        };
        Self { rows: names.into_iter().filter_map(row).collect(), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::EmbeddedStore;
    use crate::state::Live;
    use crate::write::DiskState;
    use justonce_core::{
        Action, Fence, Key, OnLapsed, Operation, Owner, Policy, Scope, Step, Token, UnknownReason,
        transition,
    };

    /// Puts unknown records into the table, without the way over the disk.
    fn fill(store: &EmbeddedStore, count: u32) -> Vec<RecordId> {
        let policy = Arc::new(Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap());
        let now = store.0.state.now();
        let ids = (0..count).map(|key| {
            let key = Key::client(format!("key-{key}")).unwrap();
            let operation = Operation::without_fingerprint(Scope::global(), key);
            let operation = operation.with_policy(Arc::clone(&policy));
            let Step { id, action, .. } = Step::begin(&operation, Owner::new("a"), Token(1));
            let (stored, _) = transition(None, &action, now, Fence::new(1)).carry_out(None);
            let entry = stored.as_ref().map(|stored| &stored.entry);
            let abandon = Action::Abandon(Fence::new(1), UnknownReason::Reported.into());
            let held = transition(entry, &abandon, now, Fence::NONE);
            let stored = held.carry_out(stored.clone()).0.unwrap();
            let live = Live {
                row: Some(Arc::new(Row { stored, bytes: 0 })),
                on_disk: DiskState::Absent,
                dirty: false,
                pending: None,
                change: 1,
                queued: None,
                waiters: None,
            };
            store.0.state.table.of(&id).live.insert(id, live);
            store.0.state.order.insert(id);
            id
        });
        let mut ids: Vec<RecordId> = ids.collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn walking_by_pages_costs_what_is_returned() {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let ids = fill(&store, 200_000);
        for state in [Some(StateName::Unknown), None] {
            let mut query = ListQuery { state, limit: 1000, ..ListQuery::default() };
            let (mut listed, mut work) = (Vec::new(), 0);
            loop {
                let (page, cost) = list_counted(&store.0.state, &query).unwrap();
                listed.extend(page.records.iter().map(|record| record.id));
                work += cost;
                query.after = page.next;
                if page.next.is_none() {
                    break;
                }
            }
            assert!(listed == ids, "{} of {} are listed", listed.len(), ids.len());
            assert!(work < ids.len() * 5 / 2, "{work} records were looked at for {}", ids.len());
        }
    }

    #[test]
    fn one_record_is_found_without_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let ids = fill(&store, 10_000);
        let hour = Some(std::time::Duration::from_secs(3600));
        for (unchanged_for, found) in [(None, 1), (hour, 0)] {
            for id in ids.iter().step_by(997) {
                let state = Some(StateName::Unknown);
                let only = Some(*id);
                let query = ListQuery { state, unchanged_for, only, ..ListQuery::default() };
                let (page, work) = list_counted(&store.0.state, &query).unwrap();
                assert_eq!((page.records.len(), page.next, work), (found, None, 1));
            }
        }
    }
}
