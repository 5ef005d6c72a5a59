//! Brings what is in the write-ahead log into the storage engine, behind the callers' backs.
//!
//! A batch here holds what many batches of the log left: of a record that changed several times,
//! only the last change. A claim that ended soon never reaches the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use justonce_core::store::{IdMap, Stats};
use justonce_core::{RecordId, StateName};

use crate::disk::{Disk, DiskOp};
use crate::journal::{BatchRow, NAME_ALL_EVERY};
use crate::state::{Home, State, is_settled};
use crate::step::Write;
use crate::wal::{Handover, WalBatch, Work};

/// Retentions are swept by the second: one row of the index holds all of a batch that end in it.
const EXPIRY_GRAIN_MS: u64 = 1000;

/// How far the engine is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    /// The number of the last batch in the engine.
    pub(crate) number: u64,
    pub(crate) done: Stats,
    /// Whether the next row names all that is unsettled, as the first after opening does.
    pub(crate) names_all_next: bool,
}

impl Applied {
    /// Writes what batches of the log leave as one batch of the engine. `all_unsettled` names what
    /// may be unsettled in the engine, for the rows that name all.
    pub(crate) fn write(
        &mut self,
        disk: &Disk,
        batches: &mut [WalBatch],
        all_unsettled: impl FnOnce() -> Vec<RecordId>,
    ) -> Result<(), String> {
        let Some(last) = batches.last() else { return Ok(()) };
        let number = self.number + 1;
        let names_all = self.names_all_next || number.is_multiple_of(NAME_ALL_EVERY);
        let mut row = BatchRow {
            now: last.now,
            fences_reserved: last.fences_reserved,
            done: self.done,
            unsettled: if names_all { all_unsettled() } else { Vec::new() },
            names_all,
            logged: last.number,
        };
        let mut writes: Vec<&mut Write> =
            batches.iter_mut().flat_map(|batch| batch.writes.iter_mut()).collect();
        keep_last(&mut writes);
        let mut expiring = Vec::new();
        for write in &writes {
            count(write, &mut row.done);
            if write.op.is_some() {
                if write.adds == Home::Live {
                    row.unsettled.push(write.id);
                }
                expires(write, &mut expiring);
            }
        }
        let ops = writes.into_iter().filter_map(|write| write.op.take());
        let expiring = expiring.into_iter();
        disk.write(number, &row, ops, expiring).map_err(|error| error.to_string())?;
        self.number = number;
        self.names_all_next = false;
        self.done = row.done;
        Ok(())
    }
}

/// Leaves of each record only the last change.
fn keep_last(writes: &mut [&mut Write]) {
    let mut later: IdMap<()> = IdMap::default();
    for write in writes.iter_mut().rev() {
        let of_a_record = matches!(write.op, Some(DiskOp::Put(..) | DiskOp::Remove(_)));
        if of_a_record && later.insert(write.id, ()).is_some() {
            write.op = None;
        }
    }
}

/// Counts a change, also one that a later one has made moot.
fn count(write: &Write, done: &mut Stats) {
    if let Home::Done(state, bytes) = write.replaces {
        done.sub(state, u64::from(bytes));
    }
    if let Home::Done(state, bytes) = write.adds {
        done.add(state, u64::from(bytes));
    }
}

/// Adds a record to the row of the expiry index that it belongs to.
fn expires(write: &Write, expiring: &mut Vec<(u64, Vec<u8>)>) {
    let Some(moment) = write.expires_at else { return };
    let end = moment.as_millis().div_ceil(EXPIRY_GRAIN_MS).saturating_mul(EXPIRY_GRAIN_MS);
    match expiring.iter_mut().find(|(other, _)| *other == end) {
        Some((_, ids)) => ids.extend_from_slice(write.id.as_bytes()),
        None => expiring.push((end, write.id.as_bytes().to_vec())),
    }
}

/// The thread that applies.
pub(crate) struct Applier {
    pub(crate) state: Arc<State>,
    pub(crate) handover: Arc<Handover>,
    pub(crate) applied: Applied,
    /// The last batch of the log that was applied.
    pub(crate) logged: u64,
}

impl Applier {
    /// Applies until no more comes. After an error the store has stopped; the log keeps what was
    /// acknowledged.
    pub(crate) fn run(mut self) {
        while let Some(work) = self.handover.next() {
            if let Err(error) = self.apply(work) {
                self.fail(&error);
                return;
            }
        }
        // The next start has less to do; the log has everything also if this fails.
        let _ = self.persist();
    }

    fn apply(&mut self, work: Work) -> Result<(), String> {
        let Work { mut batches, persist } = work;
        let state = &self.state;
        self.applied.write(&state.disk, &mut batches, || all_unsettled(state))?;
        for batch in batches {
            self.logged = batch.number;
            batch.writes.iter().for_each(|write| let_go(state, write));
        }
        if persist { self.persist() } else { Ok(()) }
    }

    fn fail(&self, error: &str) {
        self.state.stop(error);
        self.handover.fail(error);
    }

    fn persist(&self) -> Result<(), String> {
        self.state.disk.persist().map_err(|error| error.to_string())?;
        self.handover.is_durable(self.logged);
        Ok(())
    }
}

impl Drop for Applier {
    /// A thread that panicked leaves nobody waiting for it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("the thread that applies has panicked");
        }
    }
}

/// Whatever may be unsettled in the engine: all that is in memory, also what is on its way to be
/// settled. An opening store looks at each.
fn all_unsettled(state: &State) -> Vec<RecordId> {
    state.table.each().flat_map(|shard| shard.live.keys().copied().collect::<Vec<_>>()).collect()
}

/// Lets go of a record that is settled and in the engine now.
fn let_go(state: &State, write: &Write) {
    if write.change == 0 {
        return;
    }
    let mut shard = state.table.of(&write.id);
    let Some(live) = shard.live.get_mut(&write.id) else { return };
    if live.change != write.change {
        return;
    }
    match &live.row {
        Some(row) if !is_settled(&row.stored.entry) => {
            live.pending = None;
            return;
        }
        Some(row) => {
            let (settled, bytes) = (row.stored.entry.state_name(), u64::from(row.bytes));
            if settled != StateName::Tombstone {
                state.hot.insert(write.id, Arc::clone(row));
            }
            shard.done.add(settled, bytes);
        }
        None => {}
    }
    shard.live.remove(&write.id);
    shard.left += 1;
    state.live_count.fetch_sub(1, Ordering::Relaxed);
}
