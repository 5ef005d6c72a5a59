//! Applies the write-ahead log to the storage engine, in the background.
//!
//! A batch here holds what many batches of the log left: of a record that changed several times,
//! only the last change. A claim that ended soon never reaches the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use justonce_core::store::{IdMap, Stats};
use justonce_core::{RecordId, StateName, Timestamp};

use crate::check::ManifestWriter;
use crate::disk::{Disk, With};
use crate::journal::BatchRow;
use crate::rows::RowName;
use crate::state::{State, is_settled};
use crate::wal::{ApplyQueue, WalBatch};
use crate::write::{DiskOp, DiskState, Write};

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
    /// Every how many batches a row does.
    pub(crate) name_all_every: u64,
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
        let names_all = self.names_all_next || number.is_multiple_of(self.name_all_every);
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
            if change.adds == DiskState::Live {
                row.unsettled.push(*id);
            }
            expires(id, change, &mut expiring);
        }
        if !records.is_empty() {
            let records = records.into_iter().map(|(id, change)| (id, change.bytes));
            disk.ingest(records).map_err(engine_error)?;
        }
        let with = With { swept, expiring, rows };
        disk.write(number, &row, with).map_err(engine_error)?;
        self.number = number;
        self.names_all_next = false;
        self.done = row.done;
        Ok(())
    }
}

/// What the engine says. Of a failure in its own threads it tells the reason to the log only.
fn engine_error(error: fjall::Error) -> String {
    match error {
        fjall::Error::Poisoned => "the storage engine failed in the background, as it does on a \
                                   full disk; the log has its reason"
            .to_owned(),
        other => other.to_string(),
    }
}

/// What is left of a record's changes.
struct LastChange {
    /// Nothing if the record is gone.
    bytes: Option<Vec<u8>>,
    adds: DiskState,
    expires_at: Option<Timestamp>,
}

/// Counts a change, also one that a later one has made moot.
fn count(write: &Write, done: &mut Stats) {
    if let DiskState::Done(state, bytes) = write.replaces {
        done.sub(state, u64::from(bytes));
    }
    if let DiskState::Done(state, bytes) = write.adds {
        done.add(state, u64::from(bytes));
    }
}

/// The moment under which the expiry index has what ends at this one, in milliseconds.
pub(crate) fn indexed_at(end: Timestamp) -> u64 {
    end.as_millis().div_ceil(EXPIRY_GRAIN_MS).saturating_mul(EXPIRY_GRAIN_MS)
}

/// Adds a record to the row of the expiry index that it belongs to.
fn expires(id: &RecordId, change: &LastChange, expiring: &mut Vec<(u64, Vec<u8>)>) {
    let Some(end) = change.expires_at.map(indexed_at) else { return };
    match expiring.iter_mut().find(|(other, _)| *other == end) {
        Some((_, ids)) => ids.extend_from_slice(id.as_bytes()),
        None => expiring.push((end, id.as_bytes().to_vec())),
    }
}

/// The applier thread.
pub(crate) struct Applier {
    pub(crate) state: Arc<State>,
    pub(crate) apply_queue: Arc<ApplyQueue>,
    pub(crate) applied: Applied,
    pub(crate) manifest_writer: Option<ManifestWriter>,
}

impl Applier {
    /// Applies until no more comes. After an error the store has stopped; the log keeps what was
    /// acknowledged. Hands the list of files back, for when the engine is closed.
    pub(crate) fn run(mut self) -> Option<ManifestWriter> {
        let apply_queue = Arc::clone(&self.apply_queue);
        while let Some(batches) = apply_queue.next() {
            let applied = {
                let _gate = apply_queue.pause();
                self.apply(batches)
            };
            if let Err(error) = applied {
                self.fail(&error);
                break;
            }
            self.manifest_writer.iter_mut().for_each(ManifestWriter::batch_applied);
        }
        self.manifest_writer.take()
    }

    /// Applies what was handed over by now.
    #[cfg(feature = "simulation")]
    pub(crate) fn apply_queued(&mut self) {
        let batches = self.apply_queue.take_now();
        match self.apply(batches) {
            Ok(()) => self.manifest_writer.iter_mut().for_each(ManifestWriter::batch_applied),
            Err(error) => self.fail(&error),
        }
    }

    fn apply(&mut self, mut batches: Vec<WalBatch>) -> Result<(), String> {
        let state = &self.state;
        self.applied.write(&state.disk, &mut batches, || all_unsettled(state))?;
        if let Some(last) = batches.last() {
            self.apply_queue.is_durable(last.number);
        }
        for batch in batches {
            batch.writes.iter().for_each(|write| forget_applied(state, write));
        }
        Ok(())
    }

    fn fail(&self, error: &str) {
        self.state.stop(error);
        self.apply_queue.fail(error);
    }
}

impl Drop for Applier {
    /// After a panic no caller waits for this thread.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("the thread that applies has panicked");
        }
    }
}

/// Whatever may be unsettled in the engine: all that is in memory, also what is on its way to be
/// settled, and what could not be read. An opening store looks at each.
fn all_unsettled(state: &State) -> Vec<RecordId> {
    let unread = state.unread.get().into_iter().flatten().copied();
    let live = state.table.each().flat_map(|shard| shard.live.keys().copied().collect::<Vec<_>>());
    live.chain(unread).collect()
}

/// Removes from memory a record that is settled or gone, and is the same in the engine.
fn forget_applied(state: &State, write: &Write) {
    state.rows.remove_applied(&write.rows, write.rows_change);
    if write.change == 0 {
        return;
    }
    let mut shard = state.table.of(&write.id);
    let Some(live) = shard.live.get_mut(&write.id) else { return };
    if live.queued != Some(write.change) {
        return;
    }
    live.queued = None;
    match &live.row {
        // Memory is ahead, and nothing of it is queued.
        Some(_) if live.change != write.change => return,
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
    state.order.remove(&write.id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::NAME_ALL_EVERY;
    use crate::open::EmbeddedStore;
    use crate::wal::{Heading, Wal};
    use justonce_core::store::{ListQuery, Maintenance};
    use justonce_core::{
        Action, Fence, Key, OnLapsed, Operation, Owner, Policy, Scope, Step, Token, codec,
        transition,
    };

    /// A claim under `hold`, as it is written.
    fn held(key: &str) -> (RecordId, Write) {
        let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build().unwrap();
        let operation = Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap());
        let operation = operation.with_policy(policy);
        let Step { id, action, .. } = Step::begin(&operation, Owner::new("a"), Token(1));
        assert!(matches!(action, Action::Begin(_)));
        let decision = transition(None, &action, Timestamp::from_millis(1), Fence::new(1));
        let (stored, _) = decision.carry_out(None);
        let op = Some(DiskOp::Put(codec::encode(&id, &stored.unwrap())));
        (id, Write { id, op, adds: DiskState::Live, ..Write::empty() })
    }

    fn batch(number: u64, writes: Vec<Write>) -> WalBatch {
        WalBatch { number, now: Timestamp::from_millis(1), fences_reserved: 9, writes }
    }

    #[tokio::test]
    async fn what_is_unsettled_is_found_wherever_recovery_meets_a_row_that_names_all() {
        for number in NAME_ALL_EVERY - 4..=NAME_ALL_EVERY + 1 {
            let directory = tempfile::tempdir().unwrap();
            let mut ids = Vec::new();
            {
                let disk = Disk::open(&directory.path().join("records"), 1 << 20).unwrap();
                let done = Stats::default();
                let mut applied =
                    Applied { number, done, names_all_next: false, name_all_every: NAME_ALL_EVERY };
                for logged in 1..=3 {
                    let (id, write) = held(&format!("held-{logged}"));
                    let known = ids.clone();
                    ids.push(id);
                    applied.write(&disk, &mut [batch(logged, vec![write])], || known).unwrap();
                }
            }
            // The last batch is only in the log, as a kill leaves it.
            let (id, write) = held("held-4");
            ids.push(id);
            let last = Heading { number: 4, now: Timestamp::from_millis(1), fences_reserved: 9 };
            let apply_queue = Arc::new(ApplyQueue::starting_at(3));
            Wal::open(directory.path(), apply_queue).unwrap().append(last, &[write]).unwrap();
            ids.sort_unstable();
            // Their leases lapsed long ago.
            let unknown = ListQuery { state: Some(StateName::Unknown), ..ListQuery::default() };
            for opening in ["first", "second"] {
                let store = EmbeddedStore::open(directory.path()).unwrap();
                let page = store.list(&unknown).await.unwrap();
                let found: Vec<_> = page.records.iter().map(|record| record.id).collect();
                assert_eq!(found, ids, "{opening} opening after batch {number} of the engine");
            }
        }
    }

    #[test]
    fn an_applier_that_panics_stops_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let (state, apply_queue) = (Arc::clone(&store.0.state), Arc::new(ApplyQueue::default()));
        let applied = Applied {
            number: 0,
            done: Stats::default(),
            names_all_next: false,
            name_all_every: NAME_ALL_EVERY,
        };
        let applier = Applier {
            state: Arc::clone(&state),
            apply_queue: Arc::clone(&apply_queue),
            applied,
            manifest_writer: None,
        };
        let thread = std::thread::spawn(move || {
            let _applier = applier;
            panic!("the engine is upside down");
        });
        assert!(thread.join().is_err());
        assert!(state.writable().is_err(), "new writes are refused");
        assert!(apply_queue.wait_for(1).is_err(), "whoever waits hears");
    }
}
