//! Sweeps: does what time demands of records, in bounded portions.

use justonce_core::store::SweepReport;
use justonce_core::{
    Action, Answer, Fence, RecordId, StoreErrorKind, StoreResult, SweepDone, Timestamp, transition,
};
use tokio::runtime::Handle;

use crate::commit::Ticket;
use crate::state::{Shard, State, closed};
use crate::step::{StepResult, Stepper, durable};
use crate::write::{DiskState, ExpiryRow, Write};

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

/// Changes at most `limit` records; the ticket is of the last write.
pub(crate) fn sweep(
    stepper: &Stepper<'_>,
    from: &mut SweepPosition,
    limit: usize,
) -> StoreResult<(SweepReport, Option<Ticket>)> {
    let state = stepper.state;
    state.writable()?;
    let now = state.now();
    let mut sweep = Sweep {
        stepper,
        left: limit,
        report: SweepReport::default(),
        unpaced: 0,
        covered: false,
        runtime: Handle::current(),
    };
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
        sweep.covered = false;
        for id in ids {
            sweep.one(id)?;
        }
        if sweep.report.more {
            break;
        }
        // A damaged record is found again by this row after a restart, and so is what lies under a
        // claim that a crash may lose.
        if sweep.report.damaged > damaged || sweep.covered {
            continue;
        }
        // Every record of the row has been inspected, so the row is removed.
        last = Some(stepper.commits.enqueue_deferred(Write::swept(key)).map_err(|_| closed())?);
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
    stepper: &'a Stepper<'a>,
    left: usize,
    report: SweepReport,
    /// Changes since the last wait for the writer.
    unpaced: usize,
    /// Whether the disk has something settled under what was kept, which is only in memory.
    covered: bool,
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
        if self.stepper.state.damage.contains(&id) {
            self.report.damaged += 1;
            return Ok(());
        }
        let tried = match self.stepper.attempt(id, &Action::Sweep) {
            Err(error) if error.kind() == StoreErrorKind::Damaged => {
                self.report.damaged += 1;
                return Ok(());
            }
            tried => tried?,
        };
        // A sweep never needs a fence, so it is always decided.
        if let StepResult::Decided(Answer::Swept(done), _) = tried {
            if done == SweepDone::Kept {
                self.covered |= is_covered(&self.stepper.state.table.of(&id), &id);
            } else {
                self.report.count(id, done);
                self.left -= 1;
                self.unpaced += 1;
            }
        }
        if self.unpaced >= SWEPT_A_BATCH {
            self.unpaced = 0;
            let batch =
                self.stepper.commits.enqueue_deferred(Write::empty()).map_err(|_| closed())?;
            self.runtime.block_on(durable(&batch))?;
        }
        Ok(())
    }
}

/// Whether a record is only in memory, and the disk has what it took the place of.
fn is_covered(shard: &Shard, id: &RecordId) -> bool {
    let live = shard.live.get(id);
    live.is_some_and(|live| live.dirty && matches!(live.on_disk, DiskState::Done(..)))
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
