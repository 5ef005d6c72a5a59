//! A record that cannot be read stops nothing but itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{
    Answer, Engine, Entropy, Key, ManualClock, OnLapsed, Operation, Outcome, Owner, Policy,
    RecordId, Scope, Step, StoreErrorKind, Timestamp, Token,
};
use justonce_embedded::EmbeddedStore;

const HOUR: Duration = Duration::from_secs(3600);

fn operation(key: &str) -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).retention(HOUR).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

fn open(directory: &Path, clock: &ManualClock) -> EmbeddedStore {
    EmbeddedStore::builder(directory).clock(clock.clone()).open().unwrap()
}

/// A closed store with so many outcomes of a size, and as many claims.
async fn filled(directory: &Path, clock: &ManualClock, count: u32, bytes: usize) -> Ids {
    let engine = Engine::new(open(directory, clock));
    let mut ids = Ids::default();
    for number in 0..count {
        let done = operation(&format!("done-{number}"));
        // It cannot be compressed, so that its size decides where it lies.
        let entropy = Entropy::seeded(number.into());
        let noise = (0..bytes / 8).flat_map(|_| entropy.next_u64().to_le_bytes());
        let outcome = Outcome::bytes(noise.collect::<Vec<u8>>());
        engine.run(&done, async |_| Ok(outcome)).await.unwrap();
        ids.done.insert(done.id());
        let held = operation(&format!("held-{number}"));
        let begin = Step::begin(&held, Owner::new("a"), Token(1));
        let answer = engine.store().apply(&begin).await.unwrap();
        assert!(matches!(answer, Answer::Claimed(_)));
        ids.held.insert(held.id());
    }
    ids
}

#[derive(Default)]
struct Ids {
    done: BTreeSet<RecordId>,
    held: BTreeSet<RecordId>,
}

/// Turns bits of the largest file in a folder of the records around.
fn damage(directory: &Path, folder: &str, at: usize) {
    let folder = directory.join("records/keyspaces/1").join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let largest: PathBuf = files.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    assert!(bytes.len() > at + 4096, "{} bytes", bytes.len());
    bytes[at] ^= 0x55;
    std::fs::write(largest, bytes).unwrap();
}

/// Those that cannot be read. None may be absent.
async fn unreadable(store: &EmbeddedStore, ids: &BTreeSet<RecordId>) -> BTreeSet<RecordId> {
    let mut damaged = BTreeSet::new();
    for id in ids {
        match store.get(id).await {
            Ok(stored) => assert!(stored.is_some(), "a record is lost in silence"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Damaged, "{error}");
                damaged.insert(*id);
            }
        }
    }
    damaged
}

/// Lists everything, page by page.
async fn listed(store: &EmbeddedStore) -> (BTreeSet<RecordId>, Vec<RecordId>) {
    let mut query = ListQuery { limit: 7, ..ListQuery::default() };
    let (mut found, mut damaged) = (BTreeSet::new(), Vec::new());
    loop {
        let page = store.list(&query).await.unwrap();
        found.extend(page.records.iter().map(|summary| summary.id));
        damaged.extend(page.damaged);
        query.after = page.next;
        if query.after.is_none() {
            return (found, damaged);
        }
    }
}

#[tokio::test]
async fn one_damaged_record_is_skipped_counted_named_and_listed_apart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1));
    let ids = filled(directory.path(), &clock, 40, 2000).await;
    damage(directory.path(), "blobs", 20_000);
    let store = open(directory.path(), &clock);

    let (found, damaged) = listed(&store).await;
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert_eq!(found.len(), ids.done.len() + ids.held.len() - 1);
    assert!(ids.done.contains(&damaged[0]) && !found.contains(&damaged[0]));
    assert_eq!(unreadable(&store, &ids.done).await, damaged.iter().copied().collect());
    let health = store.health().await.unwrap();
    assert_eq!((health.damaged.count, &health.damaged.named), (1, &damaged));

    clock.advance(2 * HOUR);
    assert_eq!(swept(&store).await, (ids.done.len() as u64 - 1, 1));
    drop(store);
    // After a restart the next sweep finds it again.
    let store = open(directory.path(), &clock);
    assert_eq!(swept(&store).await, (0, 1));
    assert_eq!(store.health().await.unwrap().damaged.named, damaged);
    assert_eq!(store.get(&damaged[0]).await.unwrap_err().kind(), StoreErrorKind::Damaged);
}

/// Sweeps until there is no more: how many were removed, and how many are damaged.
async fn swept(store: &EmbeddedStore) -> (u64, u64) {
    let (mut removed, mut damaged) = (0, 0);
    loop {
        let report = store.sweep(1000).await.unwrap();
        removed += report.removed;
        damaged = damaged.max(report.damaged);
        if !report.more {
            return (removed, damaged);
        }
    }
}

#[tokio::test]
async fn a_damaged_part_of_the_tree_costs_no_more_than_what_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1));
    let ids = filled(directory.path(), &clock, 600, 8).await;
    damage(directory.path(), "tables", 30_000);
    // Claims are among what cannot be read; the others are found all the same.
    let store = open(directory.path(), &clock);
    let done = unreadable(&store, &ids.done).await;
    let held = unreadable(&store, &ids.held).await;
    assert!(!done.is_empty() && done.len() < 100, "{} of 600", done.len());
    assert!(!held.is_empty() && held.len() < 100, "{} of 600", held.len());
    let (found, damaged) = listed(&store).await;
    let all: BTreeSet<RecordId> = ids.done.union(&ids.held).copied().collect();
    let readable: BTreeSet<RecordId> =
        all.difference(&done.union(&held).copied().collect()).copied().collect();
    assert_eq!(found, readable);
    assert_eq!(damaged.iter().copied().collect::<BTreeSet<_>>(), done);
    assert_eq!(store.health().await.unwrap().damaged.count, (done.len() + held.len()) as u64);
    clock.advance(2 * HOUR);
    let report = store.sweep(10_000).await.unwrap();
    assert_eq!(report.damaged, done.len() as u64);
    assert!(report.removed > 0);
}

#[tokio::test]
async fn what_is_unsettled_is_listed_again_once_its_damage_is_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1));
    let ids = filled(directory.path(), &clock, 600, 8).await;
    damage(directory.path(), "tables", 30_000);
    for _ in 0..2 {
        let store = open(directory.path(), &clock);
        assert!(!unreadable(&store, &ids.held).await.is_empty());
    }
    // The same bits turn back: the file is as it was.
    damage(directory.path(), "tables", 30_000);
    let store = open(directory.path(), &clock);
    assert!(unreadable(&store, &ids.held).await.is_empty());
    clock.advance(2 * HOUR);
    let unknown = Some(justonce_core::StateName::Unknown);
    let query = ListQuery { state: unknown, limit: 1000, ..ListQuery::default() };
    let page = store.list(&query).await.unwrap();
    let found: BTreeSet<RecordId> = page.records.iter().map(|summary| summary.id).collect();
    assert_eq!(
        found.len(),
        ids.held.len(),
        "unknown operations that no operator and no prober sees"
    );
}
