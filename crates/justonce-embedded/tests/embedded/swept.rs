//! Sweeps, and what a crash leaves of them.

use std::path::Path;
use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{
    Answer, Engine, Key, ManualClock, OnLapsed, Operation, Outcome, Owner, Policy, Scope, Step,
    Timestamp, Token,
};
use justonce_embedded::EmbeddedStore;

const DAY: Duration = Duration::from_secs(24 * 3600);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn open(directory: &Path, clock: &ManualClock) -> EmbeddedStore {
    EmbeddedStore::builder(directory).clock(clock.clone()).open().unwrap()
}

async fn completed(store: &EmbeddedStore) -> u64 {
    while store.sweep(100).await.unwrap().more {}
    store.stats().await.unwrap().completed.count
}

/// A claim in the place of an outcome that has ended is only in memory while the sweep comes past.
#[tokio::test]
async fn an_outcome_that_has_ended_goes_also_if_a_crash_loses_the_claim_in_its_place() {
    let place = tempfile::tempdir().unwrap();
    let (path, crashed) = (place.path().join("store"), place.path().join("crashed"));
    let clock = ManualClock::starting_at(START);
    let policy = Policy::builder().on_lapsed(OnLapsed::Rerun).build().unwrap();
    let key = Key::client("order-17").unwrap();
    let operation = Operation::without_fingerprint(Scope::global(), key).with_policy(policy);
    let engine = Engine::new(open(&path, &clock));
    engine.run(&operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
    drop(engine);
    clock.advance(2 * DAY);
    let store = open(&path, &clock);
    let begin = Step::begin(&operation, Owner::new("a"), Token(1));
    assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
    assert_eq!(completed(&store).await, 0);
    // As a kill leaves it.
    copy(&path, &crashed);
    let store = open(&crashed, &clock);
    assert!(store.get(&operation.id()).await.unwrap().is_some(), "the claim is lost");
    clock.advance(2 * DAY);
    assert_eq!(completed(&store).await, 0, "nothing ever removes the outcome");
    assert_eq!(store.get(&operation.id()).await.unwrap(), None);
}
