//! Looking into, counting and cleaning an embedded store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use justonce_core::store::{Cursor, ListQuery, Maintenance, Page, Stats, Summary, SweepReport};
use justonce_core::{
    Action, Answer, Fence, RecordId, StateName, StoreError, StoreErrorKind, StoreResult, SweepDone,
    Timestamp, transition,
};

use tokio::runtime::Handle;

use crate::commit::Ticket;
use crate::disk::ExpiryRow;
use crate::open::{EmbeddedStore, Inner};
use crate::records::durable;
use crate::state::{Row, Shard, State};
use crate::step::{Tried, Write, closed};

/// How many records a sweep changes before it waits for the writer: callers share their batches
/// with no more of a sweep than this.
const SWEPT_A_BATCH: usize = 8;
/// How many records one page looks at, at most: it bounds the time a page takes.
const MAX_LOOKED_AT: usize = 20_000;

/// Where the sweep under way goes on.
#[derive(Debug, Default)]
pub(crate) struct SweepFrom {
    /// In the expiry index, unless a new sweep begins. Behind it lie removed rows, which take time
    /// to walk over.
    row: Option<ExpiryRow>,
    /// In the table. It also holds what is settled and not yet in the storage engine, and looking
    /// through all of it for every portion would disturb the callers.
    shard: usize,
}

impl SweepFrom {
    /// Unsettled records for which time demands something: in the whole table when a sweep begins,
    /// in another part of it for every further portion.
    fn due_in_memory(&mut self, state: &State, limit: usize) -> Vec<RecordId> {
        let mut due = Vec::new();
        if self.row.is_none() {
            state.table.each().for_each(|shard| due_in(&shard, state.now(), limit, &mut due));
        } else {
            due_in(&state.table.at(self.shard), state.now(), limit, &mut due);
            self.shard = self.shard.wrapping_add(1);
        }
        due
    }
}

impl Maintenance for EmbeddedStore {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        let (inner, query) = (Arc::clone(&self.0), query.clone());
        blocking(move || list(&inner.state, &query)).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        let mut stats = Stats::default();
        for shard in self.0.state.table.each() {
            stats.merge(&shard.done);
            for row in shard.live.values().filter_map(|live| live.row.as_ref()) {
                stats.add(row.stored.entry.state_name(), u64::from(row.bytes));
            }
        }
        Ok(stats)
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let inner = Arc::clone(&self.0);
        let (report, last) = blocking(move || sweep(&inner, limit)).await?;
        if let Some(ticket) = last {
            durable(&ticket).await?;
        }
        Ok(report)
    }

    async fn ready(&self) -> StoreResult<()> {
        self.0.state.writable()
    }
}

/// Reads of many records go to a thread where waiting for the disk disturbs nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let message = format!("the work was not finished: {error}");
        Err(StoreError::maybe_applied(StoreErrorKind::Unavailable, message))
    })
}

fn list(state: &State, query: &ListQuery) -> StoreResult<Page> {
    let now = state.now();
    let after = query.after.map(|Cursor(id)| id);
    let live = live_after(state, after.as_ref());
    let mut found: BTreeMap<RecordId, Summary> = BTreeMap::new();
    let mut seen_to: Option<RecordId> = None;
    let mut ended = true;
    // What is unsettled is in memory: whoever asks for it, and again and again, spares the disk.
    let settled = !matches!(query.state, Some(StateName::InProgress | StateName::Unknown));
    let rows = settled.then(|| state.disk.records_after(after.as_ref())).into_iter().flatten();
    for (looked_at, row) in rows.enumerate() {
        if looked_at >= MAX_LOOKED_AT || found.len() > query.page_size() {
            ended = false;
            break;
        }
        let (id, stored) = row?;
        seen_to = Some(id);
        if !live.contains_key(&id)
            && let Some(summary) = query.matches(id, &stored.entry, now)
        {
            found.insert(id, summary);
        }
    }
    // Records in memory beyond what was seen on disk belong to a later page.
    for (id, row) in &live {
        if (ended || seen_to.is_some_and(|seen| *id <= seen))
            && let Some(row) = row
            && let Some(summary) = query.matches(*id, &row.stored.entry, now)
        {
            found.insert(*id, summary);
        }
    }
    let more = !ended || found.len() > query.page_size();
    let records: Vec<Summary> = found.into_values().take(query.page_size()).collect();
    let full = records.len() == query.page_size();
    let last = if full { records.last().map(|summary| summary.id) } else { seen_to };
    Ok(Page { next: last.filter(|_| more).map(Cursor), records })
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

/// Changes at most `limit` records; the ticket is of the last write.
fn sweep(inner: &Arc<Inner>, limit: usize) -> StoreResult<(SweepReport, Option<Ticket>)> {
    let state = &inner.state;
    state.writable()?;
    let now = state.now();
    let mut sweep = Sweep {
        inner,
        left: limit,
        report: SweepReport::default(),
        unpaced: 0,
        runtime: Handle::current(),
    };
    let mut from = inner.sweep_from.lock().unwrap_or_else(PoisonError::into_inner);
    let continued = from.row.is_some();
    for id in from.due_in_memory(state, limit.saturating_add(1)) {
        sweep.one(id)?;
    }
    let mut last = None;
    for row in state.disk.expired(from.row.unwrap_or_default(), now) {
        let (key, ids) = row?;
        from.row = Some(key);
        for id in ids {
            sweep.one(id)?;
        }
        if sweep.report.more {
            break;
        }
        // Every record of the row has been looked at: it has done its service.
        last = Some(inner.commits.ride_along(Write::swept(key)).map_err(|_| closed())?);
    }
    if !sweep.report.more {
        // The next sweep begins anew: a batch may add a row that is due already, and this portion
        // may have seen a part of the table only.
        from.row = None;
        sweep.report.more = continued;
    }
    Ok((sweep.report, last))
}

/// A sweep under way.
struct Sweep<'a> {
    inner: &'a Inner,
    left: usize,
    report: SweepReport,
    /// Changes since the last wait for the writer.
    unpaced: usize,
    runtime: Handle,
}

impl Sweep<'_> {
    /// Sweeps one record, unless the limit is reached.
    fn one(&mut self, id: RecordId) -> StoreResult<()> {
        if self.left == 0 {
            self.report.more = true;
        }
        if self.report.more {
            return Ok(());
        }
        // A sweep never needs a fence, so it is always decided.
        if let Tried::Decided(Answer::Swept(done), _) =
            self.inner.stepper().attempt(id, &Action::Sweep)?
            && done != SweepDone::Kept
        {
            self.report.count(id, done);
            self.left -= 1;
            self.unpaced += 1;
        }
        if self.unpaced >= SWEPT_A_BATCH {
            self.unpaced = 0;
            let batch = self.inner.commits.ride_along(Write::empty()).map_err(|_| closed())?;
            self.runtime.block_on(durable(&batch))?;
        }
        Ok(())
    }
}

/// Adds what of a shard time demands something for, up to a limit.
fn due_in(shard: &Shard, now: Timestamp, limit: usize, due: &mut Vec<RecordId>) {
    let demanded = shard.live.iter().filter(|(_, live)| {
        live.row.as_ref().is_some_and(|row| {
            let decision = transition(Some(&row.stored.entry), &Action::Sweep, now, Fence::NONE);
            decision.answer != Answer::Swept(SweepDone::Kept)
        })
    });
    due.extend(demanded.map(|(id, _)| *id).take(limit.saturating_sub(due.len())));
}
