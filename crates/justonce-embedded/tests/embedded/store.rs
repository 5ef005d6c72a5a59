//! What only the embedded store promises.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::store::{Maintenance, Records};
use justonce_core::{
    Action, Answer, Clock, Effect, Engine, Entropy, Existing, Key, ManualClock, OnLapsed,
    Operation, Outcome, Owner, Policy, Ran, Scope, StateName, Step, StoreErrorKind, Timestamp,
    Token,
};
use justonce_embedded::{EmbeddedStore, OpenError};
use justonce_testkit::files::copy_directory;

fn operation(key: &str, on_lapsed: OnLapsed) -> Operation {
    let policy = Policy::builder().on_lapsed(on_lapsed).build().unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

/// How many batches were written: the store keeps that number in a file.
fn batches(directory: &Path) -> u64 {
    let bytes = std::fs::read(directory.join("watermark")).unwrap();
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

#[tokio::test]
async fn durability_follows_the_promise_and_a_duplicate_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::new(EmbeddedStore::open(directory.path()).unwrap());
    let mut before = batches(directory.path());
    for (on_lapsed, writes) in [(OnLapsed::Hold, 2), (OnLapsed::Resume, 2), (OnLapsed::Rerun, 1)] {
        let operation = operation(&format!("{on_lapsed:?}"), on_lapsed);
        let ran = engine.run(&operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
        assert!(matches!(ran, Ran::Executed(_)));
        assert_eq!(batches(directory.path()) - before, writes, "{on_lapsed:?}");
        for _ in 0..1000 {
            let ran = engine.run(&operation, async |_| panic!("it ran before")).await.unwrap();
            assert!(matches!(ran, Ran::Replayed(_)));
        }
        let other = operation.clone().with_fingerprint(justonce_core::Fingerprint::UNCHECKED);
        assert!(engine.peek(&other).await.unwrap().is_some());
        assert_eq!(batches(directory.path()) - before, writes, "duplicates wrote: {on_lapsed:?}");
        before = batches(directory.path());
    }
}

#[tokio::test]
async fn a_second_owner_is_told_who_the_first_is() {
    let directory = tempfile::tempdir().unwrap();
    let first = EmbeddedStore::open(directory.path()).unwrap();
    let error = EmbeddedStore::open(directory.path()).unwrap_err();
    assert!(
        matches!(&error, OpenError::InUse { pid: Some(pid), .. } if *pid == std::process::id())
    );
    let said = error.to_string();
    assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
    drop(first);
    EmbeddedStore::open(directory.path()).unwrap();
}

/// A clock that holds the writer thread up: it is read before each write.
struct Gate {
    hands: ManualClock,
    arrived: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Clock for Gate {
    fn now(&self) -> Timestamp {
        if std::thread::current().name() == Some("justonce-commit") {
            self.arrived.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
        self.hands.now()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_wait_for_a_writer_that_is_stuck() {
    let directory = tempfile::tempdir().unwrap();
    let (arrived, writing) = sync_channel(16);
    let (open, go_on) = sync_channel(16);
    let hands = ManualClock::starting_at(Timestamp::from_millis(1));
    let gate = Gate { hands, arrived, go_on: Mutex::new(go_on) };
    let store = EmbeddedStore::builder(directory.path()).clock(gate).open().unwrap();
    let engine = Engine::new(store);
    let done = operation("done", OnLapsed::Rerun);
    open.send(()).unwrap();
    engine.run(&done, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
    writing.recv().unwrap();

    // The writer is stuck in the middle of a batch from here on.
    let (other, stuck) = (engine.clone(), operation("stuck", OnLapsed::Hold));
    let begin = tokio::spawn(async move { other.begin(&stuck).await.unwrap() });
    writing.recv().unwrap();
    for _ in 0..100 {
        let ran = engine.run(&done, async |_| panic!("it ran before")).await.unwrap();
        assert_eq!(ran, Ran::Replayed(Outcome::bytes("done")));
    }
    let busy = engine.peek(&operation("stuck", OnLapsed::Hold)).await.unwrap();
    assert!(matches!(busy, Some(Existing::Busy(_))), "{busy:?}");
    assert!(!begin.is_finished(), "a claim under hold was granted before it was durable");

    for _ in 0..16 {
        let _ = open.try_send(());
    }
    let Begun::Claimed(mut claim) = begin.await.unwrap() else { panic!("it was new") };
    let _ = claim.release().await.unwrap();
}

/// A clock that panics where it is told to: the writer thread reads it before each write.
struct Breaking {
    hands: ManualClock,
    broken: Arc<std::sync::atomic::AtomicBool>,
}

impl Clock for Breaking {
    fn now(&self) -> Timestamp {
        let writes = std::thread::current().name() == Some("justonce-commit");
        if writes && self.broken.load(std::sync::atomic::Ordering::Acquire) {
            panic!("the clock is broken");
        }
        self.hands.now()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_panics_stops_the_store_and_leaves_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let hands = ManualClock::starting_at(Timestamp::from_millis(1));
    let clock = Breaking { hands: hands.clone(), broken: Arc::clone(&broken) };
    let store = Arc::new(EmbeddedStore::builder(directory.path()).clock(clock).open().unwrap());
    let engine = Engine::builder_shared(store.clone()).build();
    let done = operation("done", OnLapsed::Hold);
    engine.run(&done, async |_| Ok(Outcome::bytes("done"))).await.unwrap();

    broken.store(true, std::sync::atomic::Ordering::Release);
    let begin = Step::begin(&operation("waits", OnLapsed::Hold), Owner::new("a"), Token(1));
    let told = tokio::time::timeout(Duration::from_secs(10), store.apply(&begin)).await;
    let error = told.expect("its callers wait for ever").unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (StoreErrorKind::Stopped, Effect::MayHaveBeenApplied)
    );
    assert_eq!(store.ready().await.unwrap_err().kind(), StoreErrorKind::Stopped);
    for on_lapsed in [OnLapsed::Hold, OnLapsed::Rerun] {
        let begin = Step::begin(&operation("new", on_lapsed), Owner::new("a"), Token(2));
        let error = store.apply(&begin).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (StoreErrorKind::Stopped, Effect::NotApplied));
        assert!(error.to_string().contains("panicked"), "{error}");
    }
    let replayed = engine.run(&done, async |_| panic!("it ran before")).await.unwrap();
    assert_eq!(replayed, Ran::Replayed(Outcome::bytes("done")));
    drop((store, engine));
    let store = EmbeddedStore::builder(directory.path()).clock(hands).open().unwrap();
    let stored = store.get(&done.id()).await.unwrap().unwrap();
    assert_eq!(stored.entry.state_name(), StateName::Completed);
}

#[tokio::test]
async fn time_does_not_go_back_when_the_clock_was_set_back_between_two_starts() {
    let directory = tempfile::tempdir().unwrap();
    let late = ManualClock::starting_at(Timestamp::from_millis(1_000_000_000));
    let early = ManualClock::starting_at(Timestamp::from_millis(5));
    let held = operation("held", OnLapsed::Hold);
    let begin = Step::begin(&held, Owner::new("a"), Token(1));
    let store = EmbeddedStore::builder(directory.path()).clock(late).open().unwrap();
    assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
    drop(store);
    let store = EmbeddedStore::builder(directory.path()).clock(early).open().unwrap();
    let peek = Step::new(held.id(), Action::Peek(held.fingerprint()));
    let Answer::Existing(Existing::Busy(busy)) = store.apply(&peek).await.unwrap() else {
        panic!("the claim is alive");
    };
    assert!(busy.left <= Duration::from_secs(30), "the lease has grown to {:?}", busy.left);
}

#[tokio::test]
async fn fences_grow_over_restarts_also_when_claims_were_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..5 {
        let engine = Engine::new(EmbeddedStore::open(directory.path()).unwrap());
        for key in 0..3 {
            let operation = operation(&format!("{round}-{key}"), OnLapsed::Rerun);
            let Begun::Claimed(mut claim) = engine.begin(&operation).await.unwrap() else {
                panic!("it was new");
            };
            assert!(claim.fence().get() > last);
            last = claim.fence().get();
            let _ = claim.release().await.unwrap();
        }
    }
}

/// The one file with this ending in a folder of the store.
fn only_file(folder: &Path, ending: &str) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == ending))
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.pop().unwrap()
}

/// A closed store in which operations are done.
async fn with_operations(directory: &Path) -> Vec<Operation> {
    let engine = Engine::new(EmbeddedStore::open(directory).unwrap());
    let operations: Vec<Operation> =
        (0..20).map(|n| operation(&format!("order-{n}"), OnLapsed::Hold)).collect();
    for operation in &operations {
        engine.run(operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
    }
    operations
}

async fn all_are_there(store: &EmbeddedStore, operations: &[Operation], what: &str) {
    for operation in operations {
        let stored = store.get(&operation.id()).await.unwrap();
        let state = stored.map(|stored| stored.entry.state_name());
        assert_eq!(state, Some(StateName::Completed), "lost in silence: {what}");
    }
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.completed.count, operations.len() as u64, "{what}");
}

/// Cuts a file off, or turns a few bits around, at a part of what is used of it.
fn damage(file: &Path, part: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let at = used * part / 20;
    if part.is_multiple_of(2) {
        bytes.truncate(at);
    } else {
        bytes[at] ^= 0x55;
    }
    std::fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_made_good_by_the_other_or_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("original");
    let operations = with_operations(&original).await;
    let journal = only_file(&original.join("records"), "jnl");
    let log = only_file(&original.join("wal"), "wal");
    for (what, files) in
        [("journal", vec![&journal]), ("log", vec![&log]), ("both", vec![&journal, &log])]
    {
        let mut noticed = 0;
        for part in 1..20 {
            let what = format!("{what} damaged at {part} of 20");
            let damaged = directory.path().join(&what);
            copy_directory(&original, &damaged).unwrap();
            for file in &files {
                damage(&damaged.join(file.strip_prefix(&original).unwrap()), part);
            }
            match EmbeddedStore::open(&damaged) {
                Err(_) => noticed += 1,
                Ok(store) => all_are_there(&store, &operations, &what).await,
            }
        }
        // The engine itself refuses a journal with turned bits; one that is cut off it takes.
        let expected = match what {
            "journal" => 0..=10,
            "log" => 0..=0,
            _ => 18..=19,
        };
        assert!(expected.contains(&noticed), "{what}: {noticed} of 19 damages were noticed");
    }
}

#[tokio::test]
async fn what_the_engine_had_not_yet_synced_comes_back_from_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let (original, lost) = (directory.path().join("original"), directory.path().join("lost"));
    drop(EmbeddedStore::open(&original).unwrap());
    copy_directory(&original.join("records"), &lost.join("records")).unwrap();
    let operations = with_operations(&original).await;
    // A power loss took from the engine all that it had been given since it was opened.
    copy_directory(&original.join("wal"), &lost.join("wal")).unwrap();
    std::fs::copy(original.join("watermark"), lost.join("watermark")).unwrap();
    for opening in ["first", "second"] {
        let store = EmbeddedStore::open(&lost).unwrap();
        all_are_there(&store, &operations, opening).await;
    }
    // Without the log it is noticed.
    std::fs::remove_dir_all(lost.join("records")).unwrap();
    std::fs::remove_dir_all(lost.join("wal")).unwrap();
    let error = EmbeddedStore::open(&lost).unwrap_err().to_string();
    assert!(error.contains("records is missing"), "{error}");
}

#[tokio::test]
async fn the_files_of_the_log_are_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::new(EmbeddedStore::open(directory.path()).unwrap());
    let entropy = Entropy::seeded(1);
    let bytes: Vec<u8> = (0..125_000).flat_map(|_| entropy.next_u64().to_le_bytes()).collect();
    let outcome = Outcome::bytes(bytes);
    // As much as ten files hold.
    for number in 0..160 {
        let operation = operation(&format!("large-{number}"), OnLapsed::Rerun);
        engine.run(&operation, async |_| Ok(outcome.clone())).await.unwrap();
    }
    let files = std::fs::read_dir(directory.path().join("wal")).unwrap().count();
    assert!((2..=8).contains(&files), "{files} files");
    drop(engine);
    let store = EmbeddedStore::open(directory.path()).unwrap();
    assert_eq!(store.stats().await.unwrap().completed.count, 160);
}

#[tokio::test]
async fn a_clean_restart_also_finds_claims_that_need_not_be_durable() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1));
    let open =
        || EmbeddedStore::builder(directory.path()).clock(clock.clone()).open().map(Arc::new);
    let rerun = operation("rerun", OnLapsed::Rerun);
    let begin = Step::begin(&rerun, Owner::new("a"), Token(1));
    let store = open().unwrap();
    assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
    let before = store.get(&rerun.id()).await.unwrap();
    drop(store);
    let store = open().unwrap();
    assert_eq!(store.get(&rerun.id()).await.unwrap(), before);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.in_progress.count, stats.completed.count), (1, 0));
}

#[tokio::test]
async fn a_long_sweep_holds_lapsed_claims_on_its_way() {
    const EXPIRED: u64 = 200;
    const SHARDS: usize = 64;
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1));
    let open =
        || EmbeddedStore::builder(directory.path()).clock(clock.clone()).open().map(Engine::new);
    let engine = open().unwrap();
    let short = Policy::builder()
        .on_lapsed(OnLapsed::Rerun)
        .retention(Duration::from_secs(1))
        .build()
        .unwrap();
    for number in 0..EXPIRED {
        let key = Key::client(format!("short-{number}")).unwrap();
        let operation = Operation::without_fingerprint(Scope::global(), key).with_policy(short);
        engine.run(&operation, async |_| Ok(Outcome::empty())).await.unwrap();
    }
    drop(engine);
    let engine = open().unwrap();
    clock.advance(Duration::from_secs(3600));
    let first = engine.sweep(1).await.unwrap();
    assert_eq!((first.removed, first.more), (1, true));
    let Begun::Claimed(lapsing) = engine.begin(&operation("a", OnLapsed::Hold)).await.unwrap()
    else {
        panic!("it was new");
    };
    std::mem::forget(lapsing);
    clock.advance(Duration::from_secs(3600));
    let (mut removed, mut held) = (1, 0);
    for _ in 0..SHARDS {
        let report = engine.sweep(1).await.unwrap();
        assert!(report.more);
        (removed, held) = (removed + report.removed, held + report.held.len());
    }
    assert_eq!(held, 1, "in the midst of a sweep, after {removed} of {EXPIRED}");
    loop {
        let report = engine.sweep(50).await.unwrap();
        removed += report.removed;
        if !report.more {
            break;
        }
    }
    assert_eq!(removed, EXPIRED);
}
