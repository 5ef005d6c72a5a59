//! A store that was once opened under a clock that was ahead, and the way back.

use std::path::Path;
use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{
    AfterRetention, Answer, Engine, Entropy, Existing, Key, ManualClock, OnLapsed, Operation,
    Outcome, Owner, Policy, Ran, Scope, StateName, Step, Timestamp, Token,
};
use justonce_embedded::{EmbeddedBuilder, EmbeddedStore};

const HOUR: Duration = Duration::from_secs(3600);
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn operation(key: Key, on_lapsed: OnLapsed) -> Operation {
    let policy = Policy::builder()
        .on_lapsed(on_lapsed)
        .retention(HOUR)
        .after_retention(AfterRetention::Refuse(HOUR))
        .build()
        .unwrap();
    Operation::without_fingerprint(Scope::global(), key).with_policy(policy)
}

/// An operation whose key says that it was issued now.
fn issued(at: Timestamp, seed: u64) -> Operation {
    operation(Key::issued(at, &Entropy::seeded(seed)), OnLapsed::Hold)
}

fn builder(directory: &Path, now: Timestamp) -> EmbeddedBuilder {
    EmbeddedStore::builder(directory).clock(ManualClock::starting_at(now))
}

async fn begin(store: &EmbeddedStore, operation: &Operation) -> Answer {
    let begin = Step::begin(operation, Owner::new("b"), Token(7));
    store.apply(&begin).await.unwrap()
}

async fn warnings(store: &EmbeddedStore) -> Vec<&'static str> {
    store.health().await.unwrap().warnings.iter().map(|warning| warning.name).collect()
}

/// A store with a settled operation, then opened under a clock that is years ahead, where its
/// outcome and its tombstone end, and others are left unfinished.
async fn once_ahead(directory: &Path) -> (Operation, Operation, Operation) {
    let old = issued(START, 1);
    let engine = Engine::new(builder(directory, START).open().unwrap());
    engine.run(&old, async |_| Ok(Outcome::bytes("old"))).await.unwrap();
    drop(engine);
    let engine = Engine::new(builder(directory, START.after(YEARS)).open().unwrap());
    while engine.sweep(100).await.unwrap().more {}
    assert_eq!(engine.store().get(&old.id()).await.unwrap(), None, "its tombstone is over");
    let held = operation(Key::client("held").unwrap(), OnLapsed::Hold);
    let begin = Step::begin(&held, Owner::new("a"), Token(1));
    assert!(matches!(engine.store().apply(&begin).await.unwrap(), Answer::Claimed(_)));
    let failing = operation(Key::client("failing").unwrap(), OnLapsed::Rerun);
    let Begun::Claimed(mut claim) = engine.begin(&failing).await.unwrap() else {
        panic!("it was new");
    };
    let _ = claim.fail(Outcome::bytes("busy")).await.unwrap();
    (old, held, failing)
}

#[tokio::test]
async fn while_the_floor_is_ahead_of_the_clock_health_warns() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("store");
    once_ahead(&directory).await;
    let now = START.after(HOUR);
    let store = builder(&directory, now).open().unwrap();
    assert_eq!(warnings(&store).await, ["clock-floor-ahead"]);
    let expired = begin(&store, &issued(now, 2)).await;
    assert!(matches!(expired, Answer::Existing(Existing::Expired(_))), "{expired:?}");
    let message = &store.health().await.unwrap().warnings[0].message;
    assert!(message.contains("reset-clock-floor"), "{message}");
}

/// The way back, by the builder or by a file.
async fn brought_back(directory: &Path, now: Timestamp, by_file: bool) -> EmbeddedStore {
    if !by_file {
        return builder(directory, now).reset_clock_floor().open().unwrap();
    }
    let file = directory.join("reset-clock-floor");
    std::fs::write(&file, "").unwrap();
    let store = builder(directory, now).open().unwrap();
    assert!(!file.exists(), "it counts once");
    store
}

#[tokio::test]
async fn the_way_back_lets_fresh_keys_in_and_breaks_no_promise() {
    for by_file in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        let (old, held, failing) = once_ahead(&directory).await;
        let now = START.after(HOUR / 2);
        let store = brought_back(&directory, now, by_file).await;
        assert!(warnings(&store).await.is_empty());
        // What was forgotten under the wrong clock must not run again.
        let late = begin(&store, &old).await;
        assert!(matches!(late, Answer::Existing(Existing::Expired(_))), "{late:?}");
        let fresh = begin(&store, &issued(now.after(HOUR / 60), 2)).await;
        assert!(matches!(fresh, Answer::Claimed(_)), "{fresh:?}");
        // Nobody holds the claim any more: it must not last for years.
        let unknown = begin(&store, &held).await;
        assert!(matches!(unknown, Answer::Held(_)), "{unknown:?}");
        drop(store);

        let later = now.after(HOUR * 3 / 4);
        let store = builder(&directory, later).open().unwrap();
        assert!(warnings(&store).await.is_empty(), "it was brought back for good");
        assert!(matches!(begin(&store, &old).await, Answer::Existing(Existing::Expired(_))));
        let query = ListQuery {
            state: Some(StateName::Unknown),
            unchanged_for: Some(HOUR / 2),
            ..ListQuery::default()
        };
        let page = store.list(&query).await.unwrap();
        assert!(page.records.iter().any(|record| record.id == held.id()), "a prober finds it");
        let engine = Engine::new(store);
        let ran = engine.run(&failing, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
        assert!(matches!(ran, Ran::Executed(_)), "its back-off is over: {ran:?}");
    }
}

#[tokio::test]
async fn asked_for_without_need_it_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("store");
    let held = operation(Key::client("held").unwrap(), OnLapsed::Hold);
    let store = builder(&directory, START).open().unwrap();
    assert!(matches!(begin(&store, &held).await, Answer::Claimed(_)));
    drop(store);
    let store = brought_back(&directory, START.after(HOUR / 3600), true).await;
    let stored = store.get(&held.id()).await.unwrap().unwrap();
    assert_eq!(stored.entry.state_name(), StateName::InProgress);
    let early = begin(&store, &issued(START, 3)).await;
    assert!(matches!(early, Answer::Claimed(_)), "{early:?}");
}
