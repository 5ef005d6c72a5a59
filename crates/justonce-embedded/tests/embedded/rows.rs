//! The caller's own rows: written with a checkpoint or an outcome, or not at all.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::engine::{Begun, Context};
use justonce_core::store::Records;
use justonce_core::{
    Engine, HandlerError, Key, ManualClock, OnLapsed, Operation, Outcome, Policy, Ran, Scope,
    StateName, Timestamp,
};
use justonce_embedded::{EmbeddedStore, RowName, RowWrites};
use justonce_testkit::files::copy_directory;

fn operation(key: &str, on_lapsed: OnLapsed) -> Operation {
    let policy = Policy::builder().on_lapsed(on_lapsed).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

fn row(key: &str) -> RowName {
    RowName::new("rooms", key).unwrap()
}

fn open(directory: &Path) -> (Arc<EmbeddedStore>, Engine) {
    let store = Arc::new(EmbeddedStore::open(directory).unwrap());
    let engine = Engine::builder_shared(store.clone()).build();
    (store, engine)
}

/// Takes one of the rooms, with a checkpoint.
async fn reserve(store: &EmbeddedStore, context: &Context, room: &str) -> Result<(), HandlerError> {
    let write = |rows: &mut RowWrites<'_>| {
        rows.put(row(room), context.operation().key().as_str());
        let point = context.point("reserved", room.to_owned());
        Ok(((), point.map_err(|_| HandlerError::Unknown)?))
    };
    store.checkpoint_with(context, write).await
}

/// Adds one to a number, and ends the operation with it.
async fn count(store: &EmbeddedStore, context: &Context) -> Result<Outcome, HandlerError> {
    let write = |rows: &mut RowWrites<'_>| {
        let before = rows.get(&row("count")).map_err(|_| HandlerError::Unknown)?;
        let before = before.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        rows.put(row("count"), (before + 1).to_le_bytes());
        Ok(Outcome::bytes((before + 1).to_string()))
    };
    store.outcome_with(context, write).await
}

async fn counted(store: &EmbeddedStore) -> u64 {
    let bytes = store.row(&row("count")).await.unwrap().unwrap();
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[tokio::test]
async fn a_crash_after_the_point_finds_the_row_and_the_point() {
    for on_lapsed in [OnLapsed::Resume, OnLapsed::Rerun] {
        let directory = tempfile::tempdir().unwrap();
        let (original, copied) = (directory.path().join("a"), directory.path().join("b"));
        let (store, engine) = open(&original);
        let order = operation("order", on_lapsed);
        engine
            .run(&order, async |context| {
                reserve(&store, &context, "7").await?;
                // As a crash leaves it: copied in the middle of the operation.
                copy_directory(&original, &copied).unwrap();
                Ok(Outcome::empty())
            })
            .await
            .unwrap();
        let (store, _) = open(&copied);
        assert_eq!(store.row(&row("7")).await.unwrap().as_deref(), Some(&b"order"[..]));
        let stored = store.get(&order.id()).await.unwrap().unwrap();
        assert_eq!(stored.entry.state_name(), StateName::InProgress, "{on_lapsed:?}");
        assert!(format!("{stored:?}").contains("reserved"), "{stored:?}");
    }
}

#[tokio::test]
async fn a_claim_that_was_lost_writes_no_row() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1));
    let store = EmbeddedStore::builder(directory.path()).clock(clock.clone()).open().unwrap();
    let store = Arc::new(store);
    let engine = Engine::builder_shared(store.clone()).build();
    let order = operation("order", OnLapsed::Resume);
    let ran = engine
        .run(&order, async |late| {
            clock.advance(Duration::from_secs(3600));
            let Begun::Claimed(mut second) = engine.begin(&order).await.unwrap() else {
                panic!("the lease has lapsed");
            };
            let refused = reserve(&store, &late, "late").await;
            assert!(refused.is_err(), "it was fenced off");
            assert_eq!(store.row(&row("late")).await.unwrap(), None);
            let _ = second.complete(Outcome::bytes("second")).await.unwrap();
            Err(HandlerError::Unknown)
        })
        .await;
    assert!(!matches!(ran, Ok(Ran::Executed(_))), "{ran:?}");
    assert_eq!(store.row(&row("late")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_counts_once_however_often_and_by_how_many_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (store, engine) = open(directory.path());
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let (store, engine) = (store.clone(), engine.clone());
            tokio::spawn(async move {
                let order = operation(&format!("order-{}", number % 20), OnLapsed::Hold);
                engine.run(&order, async |context| count(&store, &context).await).await.unwrap()
            })
        })
        .collect();
    for task in tasks {
        let ran = task.await.unwrap();
        assert!(matches!(ran, Ran::Executed(_) | Ran::Replayed(_)), "{ran:?}");
    }
    assert_eq!(counted(&store).await, 20);
    drop((store, engine));
    // The storage engine has it now, and not the log.
    let (store, engine) = open(directory.path());
    assert_eq!(counted(&store).await, 20);
    let again = operation("order-3", OnLapsed::Hold);
    let ran = engine.run(&again, async |_| panic!("it ran before")).await.unwrap();
    assert!(matches!(ran, Ran::Replayed(_)));
}

#[tokio::test]
async fn wherever_the_log_is_cut_off_rows_and_outcomes_agree() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("original");
    let (store, engine) = open(&original);
    for number in 0..20 {
        let key = format!("order-{number}");
        let order = operation(&key, OnLapsed::Rerun);
        let handler = async |context: Context| {
            let write = |rows: &mut RowWrites<'_>| {
                rows.put(row(&key), "taken");
                rows.remove(row("none"));
                Ok(Outcome::bytes("done"))
            };
            store.outcome_with(&context, write).await
        };
        engine.run(&order, handler).await.unwrap();
    }
    let cut = directory.path().join("cut");
    copy_directory(&original, &cut).unwrap();
    let log = std::fs::read(cut.join("wal/0.wal")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for part in 0..=60 {
        let _ = std::fs::remove_dir_all(&cut);
        copy_directory(&original, &cut).unwrap();
        // After a power loss the watermark may lag.
        std::fs::remove_file(cut.join("watermark")).unwrap();
        std::fs::write(cut.join("wal/0.wal"), &log[..log.len() * part / 60]).unwrap();
        let (store, _) = open(&cut);
        let mut done = 0;
        for number in 0..20 {
            let key = format!("order-{number}");
            let record = store.get(&operation(&key, OnLapsed::Rerun).id()).await.unwrap();
            let taken = store.row(&row(&key)).await.unwrap();
            assert_eq!(record.is_some(), taken.is_some(), "{key} of {part}");
            done += u32::from(taken.is_some());
        }
        seen.insert(done);
    }
    assert!(seen.contains(&0) && seen.contains(&20) && seen.len() > 15, "{seen:?}");
}

#[tokio::test]
async fn a_removed_row_stays_away() {
    let directory = tempfile::tempdir().unwrap();
    for (round, put) in [(0, true), (1, false), (2, true), (3, false)] {
        let (store, engine) = open(directory.path());
        let order = operation(&format!("order-{round}"), OnLapsed::Hold);
        let handler = async |context: Context| {
            let write = |rows: &mut RowWrites<'_>| {
                if put {
                    rows.put(row("7"), "taken");
                } else {
                    rows.remove(row("7"));
                }
                let now = rows.get(&row("7")).map_err(|_| HandlerError::Unknown)?;
                assert_eq!(now.is_some(), put, "what was written here counts here");
                Ok(Outcome::empty())
            };
            store.outcome_with(&context, write).await
        };
        engine.run(&order, handler).await.unwrap();
        assert_eq!(store.row(&row("7")).await.unwrap().is_some(), put);
    }
    let (store, _) = open(directory.path());
    assert_eq!(store.row(&row("7")).await.unwrap(), None);
}

#[tokio::test]
async fn a_step_that_changes_nothing_never_drops_rows_in_silence() {
    let directory = tempfile::tempdir().unwrap();
    let (store, engine) = open(directory.path());
    let order = operation("order", OnLapsed::Resume);
    let handler = async |context: Context| {
        let early = context.point("early", "1").unwrap();
        context.save("later", "2").await.unwrap();
        let write = |rows: &mut RowWrites<'_>| {
            rows.put(row("early"), "taken");
            Ok(((), early))
        };
        let covered = store.checkpoint_with(&context, write).await;
        let written = store.row(&row("early")).await.unwrap();
        assert_eq!(covered.is_ok(), written.is_some(), "a point that is covered already");
        // A writer without rows has nothing to lose.
        let early = context.point("later", "2").unwrap();
        store.checkpoint_with(&context, |_| Ok(((), early))).await.unwrap();

        let first = count(&store, &context).await.unwrap();
        let again = |rows: &mut RowWrites<'_>| {
            rows.put(row("again"), "taken");
            Ok(first.clone())
        };
        let repeated = store.outcome_with(&context, again).await;
        let written = store.row(&row("again")).await.unwrap();
        assert_eq!(repeated.is_ok(), written.is_some(), "the same outcome again");
        assert_eq!(counted(&store).await, 1);
        Ok(first)
    };
    engine.run(&order, handler).await.unwrap();
    assert_eq!(counted(&store).await, 1);
}

#[tokio::test]
async fn an_outcome_that_the_engine_has_already_takes_no_rows_either() {
    let directory = tempfile::tempdir().unwrap();
    let (original, copied) = (directory.path().join("a"), directory.path().join("b"));
    let (_store, engine) = open(&original);
    let order = operation("order", OnLapsed::Resume);
    let mut late = None;
    let handler = async |context: Context| {
        late = Some(context);
        Ok(Outcome::bytes("done"))
    };
    engine.run(&order, handler).await.unwrap();
    // A store that has just been opened has no outcome in its table in memory.
    copy_directory(&original, &copied).unwrap();
    let (store, _) = open(&copied);
    let write = |rows: &mut RowWrites<'_>| {
        rows.put(row("late"), "taken");
        Ok(Outcome::bytes("done"))
    };
    let repeated = store.outcome_with(&late.unwrap(), write).await;
    let written = store.row(&row("late")).await.unwrap();
    assert_eq!(repeated.is_ok(), written.is_some());
}
