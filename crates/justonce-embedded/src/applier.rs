//! Brings what is in the write-ahead log into the storage engine, behind the callers' backs.
//!
//! A batch here holds what many batches of the log left: of a record that changed several times,
//! only the last change. A claim that ended soon never reaches the engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use justonce_core::store::{IdMap, Stats};
use justonce_core::{RecordId, StateName, Timestamp};

use crate::disk::{Disk, DiskOp, With};
use crate::journal::{BatchRow, NAME_ALL_EVERY};
use crate::rows::RowName;
use crate::state::{Home, State, is_settled};
use crate::step::Write;
use crate::wal::{Handover, WalBatch};

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
        let mut expiring = Vec::new();
        let mut swept = Vec::new();
        let writes = batches.iter_mut().flat_map(|batch| batch.writes.iter_mut());
        let mut records: IdMap<LastChange> = IdMap::default();
        let mut rows: BTreeMap<RowName, Option<Vec<u8>>> = BTreeMap::new();
        for write in writes {
            count(write, &mut row.done);
            let own = write.rows.iter_mut();
            rows.extend(own.map(|own| (own.name.clone(), own.value.take())));
            let bytes = match write.op.take() {
                None => continue,
                Some(DiskOp::Swept(key)) => {
                    swept.push(key);
                    continue;
                }
                Some(DiskOp::Put(bytes)) => Some(bytes),
                Some(DiskOp::Remove) => None,
            };
            let change = LastChange { bytes, adds: write.adds, expires_at: write.expires_at };
            records.insert(write.id, change);
        }
        let mut records: Vec<(RecordId, LastChange)> = records.into_iter().collect();
        records.sort_unstable_by_key(|(id, _)| *id);
        for (id, change) in &records {
            if change.adds == Home::Live {
                row.unsettled.push(*id);
            }
            expires(id, change, &mut expiring);
        }
        let failed = |error: fjall::Error| error.to_string();
        if !records.is_empty() {
            let records = records.into_iter().map(|(id, change)| (id, change.bytes));
            disk.take_in(records).map_err(failed)?;
        }
        let with = With { swept, expiring, rows };
        disk.write(number, &row, with).map_err(failed)?;
        self.number = number;
        self.names_all_next = false;
        self.done = row.done;
        Ok(())
    }
}

/// What is left of a record's changes.
struct LastChange {
    /// Nothing if the record is gone.
    bytes: Option<Vec<u8>>,
    adds: Home,
    expires_at: Option<Timestamp>,
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
fn expires(id: &RecordId, change: &LastChange, expiring: &mut Vec<(u64, Vec<u8>)>) {
    let Some(moment) = change.expires_at else { return };
    let end = moment.as_millis().div_ceil(EXPIRY_GRAIN_MS).saturating_mul(EXPIRY_GRAIN_MS);
    match expiring.iter_mut().find(|(other, _)| *other == end) {
        Some((_, ids)) => ids.extend_from_slice(id.as_bytes()),
        None => expiring.push((end, id.as_bytes().to_vec())),
    }
}

/// The thread that applies.
pub(crate) struct Applier {
    pub(crate) state: Arc<State>,
    pub(crate) handover: Arc<Handover>,
    pub(crate) applied: Applied,
}

impl Applier {
    /// Applies until no more comes. After an error the store has stopped; the log keeps what was
    /// acknowledged.
    pub(crate) fn run(mut self) {
        while let Some(batches) = self.handover.next() {
            if let Err(error) = self.apply(batches) {
                self.fail(&error);
                return;
            }
        }
    }

    fn apply(&mut self, mut batches: Vec<WalBatch>) -> Result<(), String> {
        let state = &self.state;
        self.applied.write(&state.disk, &mut batches, || all_unsettled(state))?;
        if let Some(last) = batches.last() {
            self.handover.is_durable(last.number);
        }
        for batch in batches {
            batch.writes.iter().for_each(|write| let_go(state, write));
        }
        Ok(())
    }

    fn fail(&self, error: &str) {
        self.state.stop(error);
        self.handover.fail(error);
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
    state.rows.let_go(&write.rows, write.rows_change);
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
