//! One page of the records, from memory and from disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use justonce_core::store::{Cursor, ListQuery, Page, Summary};
use justonce_core::{RecordId, StateName, StoreErrorKind, StoreResult, Timestamp};

use crate::state::{Row, State};

/// How many records one page reads at most: it bounds the time a page takes.
const MAX_LOOKED_AT: usize = 20_000;

/// A page that is being gathered.
struct Gathering<'a> {
    state: &'a State,
    query: &'a ListQuery,
    now: Timestamp,
    /// What is in memory counts, whatever the disk has of it.
    live: BTreeMap<RecordId, Option<Arc<Row>>>,
    found: BTreeMap<RecordId, Summary>,
    damaged: Vec<RecordId>,
    seen_to: Option<RecordId>,
    looked_at: usize,
}

pub(crate) fn list(state: &State, query: &ListQuery) -> StoreResult<Page> {
    let after = query.after.map(|Cursor(id)| id);
    let mut page = Gathering {
        state,
        query,
        now: state.now(),
        live: live_after(state, after.as_ref()),
        found: BTreeMap::new(),
        damaged: Vec::new(),
        seen_to: None,
        looked_at: 0,
    };
    // What is unsettled is in memory: frequent queries for it do not read the disk.
    let settled = !matches!(query.state, Some(StateName::InProgress | StateName::Unknown));
    let ended = !settled || page.gather(after)?;
    Ok(page.finish(ended))
}

impl Gathering<'_> {
    /// Reads what is on disk. Returns whether it came to the end.
    fn gather(&mut self, after: Option<RecordId>) -> StoreResult<bool> {
        for row in self.state.disk.records_after(after.as_ref()) {
            if self.is_full() {
                return Ok(false);
            }
            match row {
                Ok((id, Ok(stored))) => self.see(id, Some(&stored.entry)),
                Ok((id, Err(error))) if error.kind() == StoreErrorKind::Damaged => {
                    self.state.note_damage(id, &error);
                    self.see(id, None);
                }
                Ok((_, Err(error))) => return Err(error),
                Err(error) if error.kind() == StoreErrorKind::Damaged => {
                    return self.gather_by_name(self.seen_to.or(after));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Where a part of the tree cannot be read, the expiry index has the names of all that is
    /// settled. Slower, and rare.
    fn gather_by_name(&mut self, after: Option<RecordId>) -> StoreResult<bool> {
        let mut names = BTreeSet::new();
        for row in self.state.disk.expired([0; 16], Timestamp::MAX) {
            let Some((_, ids)) = row? else { continue };
            for id in ids.into_iter().filter(|id| after.is_none_or(|after| *id > after)) {
                names.insert(id);
                if names.len() > MAX_LOOKED_AT {
                    names.pop_last();
                }
            }
        }
        let ended = names.len() < MAX_LOOKED_AT;
        for id in names {
            if self.is_full() {
                return Ok(false);
            }
            match self.state.record_on_disk(&id) {
                Ok(Some((stored, _))) => self.see(id, Some(&stored.entry)),
                // It is gone, and its row of the index not yet.
                Ok(None) => self.seen_to = Some(id),
                Err(error) if error.kind() == StoreErrorKind::Damaged => self.see(id, None),
                Err(error) => return Err(error),
            }
        }
        Ok(ended)
    }

    fn is_full(&self) -> bool {
        self.looked_at >= MAX_LOOKED_AT || self.found.len() > self.query.page_size()
    }

    /// A record on disk; nothing if it cannot be read.
    fn see(&mut self, id: RecordId, entry: Option<&justonce_core::Entry>) {
        self.looked_at += 1;
        self.seen_to = Some(id);
        if self.live.contains_key(&id) {
            return;
        }
        match entry {
            None => self.damaged.push(id),
            Some(entry) => {
                if let Some(summary) = self.query.matches(id, entry, self.now) {
                    self.found.insert(id, summary);
                }
            }
        }
    }

    fn finish(mut self, ended: bool) -> Page {
        // Records in memory beyond what was seen on disk belong to a later page.
        for (id, row) in &self.live {
            if (ended || self.seen_to.is_some_and(|seen| *id <= seen))
                && let Some(row) = row
                && let Some(summary) = self.query.matches(*id, &row.stored.entry, self.now)
            {
                self.found.insert(*id, summary);
            }
        }
        let size = self.query.page_size();
        let more = !ended || self.found.len() > size;
        let records: Vec<Summary> = self.found.into_values().take(size).collect();
        let full = records.len() == size;
        let last = if full { records.last().map(|summary| summary.id) } else { self.seen_to };
        let next = last.filter(|_| more);
        // The rest comes with the next page.
        let mut damaged = self.damaged;
        damaged.retain(|id| next.is_none_or(|next| *id <= next));
        Page { records, next: next.map(Cursor), damaged }
    }
}

/// The records in memory behind a cursor; nothing for those whose removal is on its way.
fn live_after(state: &State, after: Option<&RecordId>) -> BTreeMap<RecordId, Option<Arc<Row>>> {
    let mut live = BTreeMap::new();
    for shard in state.table.each() {
        for (id, entry) in &shard.live {
            if after.is_none_or(|after| id > after) {
                live.insert(*id, entry.row.clone());
            }
        }
    }
    live
}
