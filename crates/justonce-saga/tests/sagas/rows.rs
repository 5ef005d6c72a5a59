//! Phases that write rows of their own into the embedded store: the rows and the checkpoint are
//! durable together. A crash is the directory as it lies on disk at that moment, opened again.

use std::path::Path;
use std::sync::Arc;

use justonce_core::{
    Engine, HandlerError, Key, ManualClock, OnLapsed, Operation, Outcome, Policy, Ran, Scope,
    Timestamp,
};
use justonce_embedded::{EmbeddedStore, RowName, RowWrites};
use justonce_saga::{PhaseRun, Phases, Within};
use justonce_testkit::files::copy_directory;

const PHASES: [&str; 3] = ["reserve", "charge", "ship"];
/// When the order is begun, and when its lease has lapsed, in milliseconds.
const BEGUN: u64 = 1;
const LAPSED: u64 = 3_600_000;

fn operation() -> Operation {
    let policy = Policy::builder().on_lapsed(OnLapsed::Resume).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client("order").unwrap())
        .with_policy(policy)
}

/// A store for which it is always the same time.
fn open(directory: &Path, now: u64) -> Arc<EmbeddedStore> {
    let clock = ManualClock::starting_at(Timestamp::from_millis(now));
    Arc::new(EmbeddedStore::builder(directory).clock(clock).open().unwrap())
}

fn row(phase: &str) -> RowName {
    RowName::new("ledger", phase).unwrap()
}

/// How often each phase took effect.
async fn ledger(store: &EmbeddedStore) -> Vec<u8> {
    let mut found = Vec::new();
    for phase in PHASES {
        found.push(store.row(&row(phase)).await.unwrap().map_or(0, |times| times[0]));
    }
    found
}

/// Adds one to what a phase has done.
fn once_more(rows: &mut RowWrites<'_>, phase: &str) -> Result<(), HandlerError> {
    let before = rows.get(&row(phase)).map_err(|_| HandlerError::Unknown)?;
    rows.put(row(phase), [before.map_or(1, |times| times[0] + 1)]);
    Ok(())
}

async fn phase(
    store: &EmbeddedStore,
    run: &mut PhaseRun,
    name: &str,
    at: &impl Fn(&str),
) -> Result<(), HandlerError> {
    run.phase_within(name, async |phase: Within| {
        let write = |rows: &mut RowWrites<'_>| {
            once_more(rows, name)?;
            at(&format!("in {name}"));
            Ok(((), phase.point(&())?))
        };
        store.checkpoint_with(phase.context(), write).await
    })
    .await?;
    at(&format!("after {name}"));
    Ok(())
}

/// Runs the order; `at` is told where it is.
async fn order(store: &Arc<EmbeddedStore>, at: impl Fn(&str)) -> Option<Ran> {
    let engine = Engine::builder_shared(store.clone()).build();
    let phases = Phases::new(PHASES).unwrap();
    let operation = operation();
    let ran = phases.run(&engine, &operation, async |mut run| {
        phase(store, &mut run, "reserve", &at).await?;
        phase(store, &mut run, "charge", &at).await?;
        let write = |rows: &mut RowWrites<'_>| {
            once_more(rows, "ship")?;
            at("in ship");
            Ok(Outcome::bytes("shipped"))
        };
        let outcome = store.outcome_with(run.context(), write).await;
        at("after ship");
        outcome
    });
    ran.await.ok()
}

#[tokio::test]
async fn wherever_it_dies_every_phase_takes_effect_once() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("original");
    let store = open(&original, BEGUN);
    // The directory is kept as it is at each point.
    let keep = |point: &str| copy_directory(&original, &directory.path().join(point)).unwrap();
    assert!(matches!(order(&store, keep).await, Some(Ran::Executed(_))));
    let expected = [
        ("in reserve", [0, 0, 0]),
        ("after reserve", [1, 0, 0]),
        ("in charge", [1, 0, 0]),
        ("after charge", [1, 1, 0]),
        ("in ship", [1, 1, 0]),
        ("after ship", [1, 1, 1]),
    ];
    for (point, done) in expected {
        let store = open(&directory.path().join(point), LAPSED);
        assert_eq!(ledger(&store).await, done, "{point}");
        let ran = order(&store, |_| {}).await;
        let shipped = Outcome::bytes("shipped");
        assert_eq!(ran.as_ref().and_then(Ran::outcome), Some(&shipped), "{point}: {ran:?}");
        assert_eq!(ledger(&store).await, [1, 1, 1], "{point}");
    }
}
