//! Looking into, counting and cleaning an embedded store.

use std::sync::{Arc, PoisonError};

use justonce_core::store::{Health, ListQuery, Maintenance, Page, Stats, SweepReport};
use justonce_core::{
    Action, Answer, Fence, RecordId, StoreError, StoreErrorKind, StoreResult, SweepDone, Timestamp,
    transition,
};

use tokio::runtime::Handle;

use crate::commit::Ticket;
use crate::disk::ExpiryRow;
use crate::listing::list;
use crate::open::{EmbeddedStore, Inner};
use crate::records::durable;
use crate::state::{Shard, State};
use crate::step::{StepResult, Write, closed};

/// How many records a sweep changes before it waits for the writer: callers share their batches
/// with no more of a sweep than this.
const SWEPT_A_BATCH: usize = 8;

/// Where a running sweep continues.
#[derive(Debug, Default)]
pub(crate) struct SweepPosition {
    /// In the expiry index, unless a new sweep begins. Behind it lie removed rows, which take time
    /// to walk over.
    row: Option<ExpiryRow>,
    /// In the table. It also holds what is settled and not yet in the storage engine, and looking
    /// through all of it for every portion would disturb the callers.
    shard: usize,
}

impl SweepPosition {
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

    async fn health(&self) -> StoreResult<Health> {
        Ok(Health { damaged: self.0.state.damage.damaged(), warnings: self.0.warnings.clone() })
    }
}

/// Reads of many records run on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let message = format!("the work was not finished: {error}");
        Err(StoreError::maybe_applied(StoreErrorKind::Unavailable, message))
    })
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
    let mut from = inner.sweep_position.lock().unwrap_or_else(PoisonError::into_inner);
    let continued = from.row.is_some();
    for id in from.due_in_memory(state, limit.saturating_add(1)) {
        sweep.one(id)?;
    }
    let mut last = None;
    for row in state.disk.expired(from.row.unwrap_or_default(), now) {
        // A row that is not ours is left where it is.
        let Some((key, ids)) = row? else { continue };
        from.row = Some(key);
        let damaged = sweep.report.damaged;
        for id in ids {
            sweep.one(id)?;
        }
        if sweep.report.more {
            break;
        }
        // A damaged record is found again by this row after a restart.
        if sweep.report.damaged > damaged {
            continue;
        }
        // Every record of the row has been inspected, so the row is removed.
        last = Some(inner.commits.enqueue_deferred(Write::swept(key)).map_err(|_| closed())?);
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
        if self.inner.state.damage.contains(&id) {
            self.report.damaged += 1;
            return Ok(());
        }
        let tried = match self.inner.stepper().attempt(id, &Action::Sweep) {
            Err(error) if error.kind() == StoreErrorKind::Damaged => {
                self.report.damaged += 1;
                return Ok(());
            }
            tried => tried?,
        };
        // A sweep never needs a fence, so it is always decided.
        if let StepResult::Decided(Answer::Swept(done), _) = tried
            && done != SweepDone::Kept
        {
            self.report.count(id, done);
            self.left -= 1;
            self.unpaced += 1;
        }
        if self.unpaced >= SWEPT_A_BATCH {
            self.unpaced = 0;
            let batch =
                self.inner.commits.enqueue_deferred(Write::empty()).map_err(|_| closed())?;
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
