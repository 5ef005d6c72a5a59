//! Records that wait for a retry as earlier releases left them: those lay in memory as long as they
//! waited, so that no row of the expiry index has them, and no count of what is settled.
//!
//! They are told by the index. Whatever waits since is in it, in the same batch as its record.

use std::collections::BTreeMap;

use justonce_core::store::{IdMap, Stored};
use justonce_core::{Entry, Failed, RecordId, State, StoreErrorKind, StoreResult, Timestamp};

use crate::applier::indexed_at;
use crate::disk::Disk;
use crate::write::ExpiryRow;

/// Settled records that an opening store was told to look at.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// By the moment under which the index has them, if it has.
    by_moment: BTreeMap<u64, IdMap<(Stored, usize)>>,
}

impl Candidates {
    /// Takes a settled record; all but those that wait for a retry are known to be in the index.
    pub(crate) fn add(&mut self, id: RecordId, stored: Stored, bytes: usize) {
        let Entry::Record(record) = &stored.entry else { return };
        if let State::Failed(Failed::AwaitingRetry(waiting)) = &record.state {
            let moment = indexed_at(waiting.expires_at);
            self.by_moment.entry(moment).or_default().insert(id, (stored, bytes));
        }
    }

    /// Those that the index does not have. Each of its moments is read once.
    pub(crate) fn unindexed(
        mut self,
        disk: &Disk,
    ) -> StoreResult<impl Iterator<Item = (RecordId, (Stored, usize))>> {
        for (moment, candidates) in &mut self.by_moment {
            let mut from: ExpiryRow = [0; 16];
            for (to, byte) in from.iter_mut().zip(moment.to_be_bytes()) {
                *to = byte;
            }
            for row in disk.expired(from, Timestamp::from_millis(*moment)) {
                let indexed = match row {
                    Ok(indexed) => indexed,
                    // Whether they are in it cannot be told; the disk has them either way.
                    Err(error) if error.kind() == StoreErrorKind::Damaged => {
                        candidates.clear();
                        break;
                    }
                    Err(error) => return Err(error),
                };
                for id in indexed.into_iter().flat_map(|(_, ids)| ids) {
                    candidates.remove(&id);
                }
            }
        }
        Ok(self.by_moment.into_values().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applier::Applied;
    use crate::open::EmbeddedStore;
    use crate::wal::WalBatch;
    use crate::write::{DiskOp, DiskState, Write};
    use justonce_core::store::{ListQuery, Maintenance, Stats};
    use justonce_core::{
        Action, Engine, Failure, FailureKind, Fence, Key, ManualClock, Operation, Outcome, Owner,
        Ran, Scope, StateName, Step, Token, codec, transition,
    };
    use std::time::Duration;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn operation(key: &str) -> Operation {
        Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap())
    }

    /// A record that waits for a retry, as an earlier release wrote it.
    fn waiting(key: &str) -> Write {
        let Step { id, action, .. } = Step::begin(&operation(key), Owner::new("a"), Token(1));
        let (stored, _) = transition(None, &action, START, Fence::new(1)).carry_out(None);
        let kind = FailureKind::Passing;
        let failure = Failure { outcome: Outcome::bytes("away"), kind, jitter: 0 };
        let fail = Action::Fail(Fence::new(1), failure);
        let entry = stored.as_ref().map(|stored| &stored.entry);
        let (stored, _) = transition(entry, &fail, START, Fence::NONE).carry_out(stored.clone());
        let op = Some(DiskOp::Put(codec::encode(&id, &stored.unwrap())));
        Write { id, op, adds: DiskState::Live, ..Write::empty() }
    }

    async fn failed(store: &EmbeddedStore) -> (u64, usize) {
        let query = ListQuery { state: Some(StateName::Failed), ..ListQuery::default() };
        let listed = store.list(&query).await.unwrap().records.len();
        (store.stats().await.unwrap().failed.count, listed)
    }

    #[tokio::test]
    async fn what_an_earlier_release_left_waiting_is_counted_once_and_ends_in_time() {
        let directory = tempfile::tempdir().unwrap();
        {
            let disk = Disk::open(&directory.path().join("records"), 1 << 20).unwrap();
            let mut applied = Applied {
                number: 7,
                done: Stats::default(),
                names_all_next: true,
                name_all_every: 4096,
            };
            let writes = (0..5).map(|key| waiting(&format!("key-{key}"))).collect();
            let mut batch = [WalBatch { number: 1, now: START, fences_reserved: 9, writes }];
            applied.write(&disk, &mut batch, Vec::new).unwrap();
        }
        let clock = ManualClock::starting_at(START.after(Duration::from_secs(60)));
        let open = || EmbeddedStore::builder(directory.path()).clock(clock.clone()).open().unwrap();
        for _ in 0..3 {
            assert_eq!(failed(&open()).await, (5, 5));
        }
        // One is tried again and fails again: now it is in the index.
        let engine = Engine::new(open());
        let again = async |context: justonce_core::engine::Context| {
            assert_eq!(context.attempt(), 2);
            Err(justonce_core::HandlerError::retryable("away"))
        };
        assert!(matches!(engine.run(&operation("key-0"), again).await.unwrap(), Ran::Failed(_)));
        drop(engine);
        for _ in 0..3 {
            assert_eq!(failed(&open()).await, (5, 5));
        }
        clock.advance(2 * DAY);
        let store = open();
        while store.sweep(2).await.unwrap().more {}
        assert_eq!(failed(&store).await, (0, 0));
        drop(store);
        assert_eq!(failed(&open()).await, (0, 0));
    }
}
