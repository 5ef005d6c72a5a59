//! What happened between the backup and the loss of the store is not taken for new.

use std::path::{Path, PathBuf};
use std::time::Duration;

use justonce_core::engine::Settlement;
use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_core::{
    Answer, Engine, Entropy, Existing, HandlerError, Key, ManualClock, NoteKind, OnLapsed,
    Operation, Outcome, Owner, Policy, Ran, Resolution, Resolve, Resolver, Scope, StateName, Step,
    Timestamp, Token, Why,
};
use justonce_embedded::EmbeddedStore;
use justonce_embedded::backup::{RestoreOptions, Unpacker, restore};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn operation(key: Key, on_lapsed: OnLapsed) -> Operation {
    let policy = Policy::builder().on_lapsed(on_lapsed).build().unwrap();
    Operation::without_fingerprint(Scope::global(), key).with_policy(policy)
}

/// An operation whose key says when it was issued.
fn issued(at: Timestamp, seed: u64) -> Operation {
    operation(Key::issued(at, &Entropy::seeded(seed)), OnLapsed::Hold)
}

fn undated(key: &str) -> Operation {
    operation(Key::client(key).unwrap(), OnLapsed::Hold)
}

async fn done(engine: &Engine, operation: &Operation) {
    let ran = engine.run(operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
    assert!(matches!(ran, Ran::Executed(_)), "{ran:?}");
}

async fn begin(store: &EmbeddedStore, operation: &Operation) -> Answer {
    store.apply(&Step::begin(operation, Owner::new("b"), Token(7))).await.unwrap()
}

fn open(directory: &Path, clock: &ManualClock) -> EmbeddedStore {
    EmbeddedStore::builder(directory).clock(clock.clone()).open().unwrap()
}

async fn warnings(store: &EmbeddedStore) -> Vec<&'static str> {
    store.health().await.unwrap().warnings.iter().map(|warning| warning.name).collect()
}

/// A store that was backed up at the start, and lost an hour later.
struct Lost {
    place: tempfile::TempDir,
    clock: ManualClock,
    /// Executed before the backup.
    kept: Operation,
    /// Executed after it.
    lost: Operation,
    lost_undated: Operation,
    backup: PathBuf,
    highest_fence: u64,
}

impl Lost {
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let clock = ManualClock::starting_at(START);
        let (path, backup) = (place.path().join("store"), place.path().join("backup"));
        let (kept, lost) = (issued(START, 1), issued(START.after(MINUTE), 2));
        let lost_undated = undated("order-17");
        let engine = Engine::new(open(&path, &clock));
        done(&engine, &kept).await;
        drop(engine);
        let store = open(&path, &clock);
        store.backup(&backup).await.unwrap();
        let engine = Engine::new(store);
        clock.advance(MINUTE);
        done(&engine, &lost).await;
        done(&engine, &lost_undated).await;
        drop(engine);
        // It is opened now and then, and each time reserves more fences.
        let mut highest_fence = 0;
        for number in 0..5 {
            clock.advance(MINUTE);
            let store = open(&path, &clock);
            let Answer::Claimed(claim) = begin(&store, &undated(&format!("claim-{number}"))).await
            else {
                panic!("it was new");
            };
            highest_fence = claim.fence.get();
        }
        clock.set(START.after(HOUR));
        Self { place, clock, kept, lost, lost_undated, backup, highest_fence }
    }

    fn options(&self) -> RestoreOptions {
        RestoreOptions::default().clock(self.clock.clone())
    }

    fn restored(&self, options: &RestoreOptions) -> (PathBuf, EmbeddedStore) {
        let to = self.place.path().join("restored");
        restore(&self.backup, &to, options, &mut |_| {}).unwrap();
        let store = open(&to, &self.clock);
        (to, store)
    }
}

#[tokio::test]
async fn an_operation_that_may_be_lost_becomes_unknown_and_can_be_resolved() {
    let lost = Lost::new().await;
    let (_, store) = lost.restored(&lost.options());
    assert_eq!(warnings(&store).await, ["restored-from-backup"]);
    let message = &store.health().await.unwrap().warnings[0].message;
    assert!(message.contains("2023-11-14T22:13:20Z"), "when the backup was made: {message}");
    let replayed = begin(&store, &lost.kept).await;
    assert!(matches!(replayed, Answer::Existing(Existing::Completed(_))), "{replayed:?}");
    let held = begin(&store, &lost.lost).await;
    let Answer::Held(unknown) = held else { panic!("it may have been executed: {held:?}") };
    let again = begin(&store, &lost.lost).await;
    assert!(matches!(again, Answer::Existing(Existing::Unknown(_))), "counted once: {again:?}");
    let query = ListQuery { state: Some(StateName::Unknown), ..ListQuery::default() };
    let page = store.list(&query).await.unwrap();
    assert!(page.records.iter().any(|record| record.id == lost.lost.id()), "a prober finds it");
    let stored = store.get(&lost.lost.id()).await.unwrap().unwrap();
    let note = stored.timeline.notes().last().unwrap();
    let NoteKind::HeldBecause(_, why) = &note.kind else { panic!("{note:?}") };
    assert!(why.as_str().contains("restored at 2023-11-14T23:13:20Z"), "{why:?}");

    // Nobody executed it: the next request does, once.
    let engine = Engine::new(store);
    let release = Resolve {
        resolution: Resolution::Release,
        by: Resolver::operator("ann"),
        why: Why::new("not in the ledger"),
    };
    let settled = engine.resolve(lost.lost.id(), unknown.fence, release).await.unwrap();
    assert_eq!(settled, Settlement::Stored);
    done(&engine, &lost.lost).await;
}

#[tokio::test]
async fn it_stays_unknown_across_restarts_and_backups_of_the_restored_store() {
    let lost = Lost::new().await;
    let (to, store) = lost.restored(&lost.options());
    drop(store);
    let store = open(&to, &lost.clock);
    lost.clock.advance(HOUR * 24);
    let second = lost.place.path().join("second-backup");
    store.backup(&second).await.unwrap();
    drop(store);
    lost.clock.advance(HOUR);
    let third = lost.place.path().join("third");
    restore(&second, &third, &lost.options(), &mut |_| {}).unwrap();
    let store = open(&third, &lost.clock);
    let first_loss = begin(&store, &lost.lost).await;
    assert!(matches!(first_loss, Answer::Held(_)), "{first_loss:?}");
    let between = issued(START.after(HOUR * 3), 9);
    let between = begin(&store, &between).await;
    assert!(matches!(between, Answer::Claimed(_)), "nothing was lost then: {between:?}");
    let second_loss = issued(START.after(HOUR * 25 + MINUTE), 10);
    let second_loss = begin(&store, &second_loss).await;
    assert!(matches!(second_loss, Answer::Held(_)), "{second_loss:?}");
}

#[tokio::test]
async fn the_time_that_may_be_lost_has_margins_and_new_keys_are_new() {
    let lost = Lost::new().await;
    let options = lost.options().key_age(MINUTE).clock_skew(Duration::from_secs(5));
    let (_, store) = lost.restored(&options);
    let (early, late) = (MINUTE + Duration::from_secs(5), HOUR + Duration::from_secs(5));
    let before =
        |by: Duration| Timestamp::from_millis((START.since(Timestamp::ZERO) - by).as_secs() * 1000);
    let ms = Duration::from_millis(1);
    for (at, is_held) in [
        (before(early + ms), false),
        (before(early), true),
        (START, true),
        (START.after(late - ms), true),
        (START.after(late), false),
        (START.after(HOUR * 2), false),
    ] {
        let answer = begin(&store, &issued(at, at.as_millis())).await;
        assert_eq!(matches!(answer, Answer::Held(_)), is_held, "{at}: {answer:?}");
        assert_eq!(matches!(answer, Answer::Claimed(_)), !is_held, "{at}: {answer:?}");
    }
}

#[tokio::test]
async fn only_rerun_executes_what_may_be_lost() {
    let lost = Lost::new().await;
    let (_, store) = lost.restored(&lost.options());
    let engine = Engine::new(store);
    let key = |seed| Key::issued(START.after(MINUTE), &Entropy::seeded(seed));
    done(&engine, &operation(key(21), OnLapsed::Rerun)).await;
    for (seed, policy) in [(22, OnLapsed::Resume), (23, OnLapsed::Hold)] {
        let operation = operation(key(seed), policy);
        let ran = engine.run(&operation, async |_| panic!("it may have been executed")).await;
        assert!(matches!(ran, Ok(Ran::Unknown(_))), "{ran:?}");
    }
}

/// What the backup has as waiting or interrupted, went on, and then the store was lost.
#[tokio::test]
async fn what_was_unfinished_at_the_backup_may_have_gone_on_and_is_unknown() {
    let place = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(START);
    let names = ["store", "backup", "restored"].map(|name| place.path().join(name));
    let [path, backup, to] = &names;
    let kinds = [OnLapsed::Hold, OnLapsed::Resume, OnLapsed::Rerun];
    let failed = |kind: OnLapsed| {
        let name = format!("failed-{kind:?}");
        operation(Key::client(name).unwrap(), kind)
    };
    let begun = |kind: OnLapsed| {
        let name = format!("begun-{kind:?}");
        operation(Key::client(name).unwrap(), kind)
    };
    let store = open(path, &clock);
    let backups = store.backups();
    let engine = Engine::new(store);
    for kind in kinds {
        let busy = async |_| Err(HandlerError::Retryable(Outcome::bytes("busy")));
        let ran = engine.run(&failed(kind), busy).await.unwrap();
        assert!(matches!(ran, Ran::Failed(_)), "{ran:?}");
        let begin = Step::begin(&begun(kind), Owner::new("a"), Token(1));
        assert!(matches!(engine.store().apply(&begin).await.unwrap(), Answer::Claimed(_)));
    }
    let mut unpacker = Unpacker::new(backup).unwrap();
    backups.begin().await.unwrap().write_to(&mut unpacker, &mut |_| {}).unwrap();
    unpacker.finish().unwrap();
    drop(engine);
    clock.advance(HOUR);
    let options = RestoreOptions::default().clock(clock.clone());
    restore(backup, to, &options, &mut |_| {}).unwrap();
    let store = open(to, &clock);
    for kind in [OnLapsed::Hold, OnLapsed::Resume] {
        for operation in [failed(kind), begun(kind)] {
            let answer = begin(&store, &operation).await;
            assert!(matches!(answer, Answer::Held(_)), "{kind:?}: {answer:?}");
        }
    }
    let engine = Engine::new(store);
    done(&engine, &failed(OnLapsed::Rerun)).await;
    done(&engine, &begun(OnLapsed::Rerun)).await;
    // Released by an operator, it goes on, and fails as any other.
    let stored = engine.store().get(&failed(OnLapsed::Hold).id()).await.unwrap().unwrap();
    let release = Resolve {
        resolution: Resolution::Release,
        by: Resolver::operator("ann"),
        why: Why::new("not in the ledger"),
    };
    let id = failed(OnLapsed::Hold).id();
    let settled = engine.resolve(id, stored.entry.fence(), release).await.unwrap();
    assert_eq!(settled, Settlement::Stored);
    done(&engine, &failed(OnLapsed::Hold)).await;
}

#[tokio::test]
async fn keys_without_a_date_are_new_unless_they_are_held_for_a_while() {
    let lost = Lost::new().await;
    let (_, store) = lost.restored(&lost.options().hold_undated(HOUR));
    let held = begin(&store, &lost.lost_undated).await;
    assert!(matches!(held, Answer::Held(_)), "{held:?}");
    lost.clock.advance(HOUR);
    let new = begin(&store, &undated("another")).await;
    assert!(matches!(new, Answer::Claimed(_)), "{new:?}");

    let lost = Lost::new().await;
    let (_, store) = lost.restored(&lost.options());
    let new = begin(&store, &lost.lost_undated).await;
    assert!(matches!(new, Answer::Claimed(_)), "it cannot be told apart: {new:?}");
}

#[tokio::test]
async fn an_operator_can_take_what_was_lost_for_not_executed_then_or_later() {
    let lost = Lost::new().await;
    let (_, store) = lost.restored(&lost.options().accept_lost());
    assert!(warnings(&store).await.is_empty());
    assert!(matches!(begin(&store, &lost.lost).await, Answer::Claimed(_)));

    for by_file in [false, true] {
        let lost = Lost::new().await;
        let (to, store) = lost.restored(&lost.options());
        drop(store);
        let file = to.join("accept-lost");
        let mut builder = EmbeddedStore::builder(&to).clock(lost.clock.clone());
        if by_file {
            std::fs::write(&file, "").unwrap();
        } else {
            builder = builder.accept_lost();
        }
        drop(builder.open().unwrap());
        assert!(!file.exists(), "it counts once");
        let store = open(&to, &lost.clock);
        assert!(warnings(&store).await.is_empty(), "for good");
        assert!(matches!(begin(&store, &lost.lost).await, Answer::Claimed(_)));
    }
}

#[tokio::test]
async fn a_restored_store_gives_no_fence_that_the_lost_one_gave() {
    let lost = Lost::new().await;
    let (to, store) = lost.restored(&lost.options());
    let Answer::Claimed(first) = begin(&store, &undated("new-1")).await else { panic!("new") };
    assert!(first.fence.get() > lost.highest_fence, "{first:?} after {}", lost.highest_fence);
    drop(store);
    // The same backup once more: what the first restored store gave is not given again either.
    std::fs::remove_dir_all(&to).unwrap();
    lost.clock.advance(MINUTE);
    let (_, store) = lost.restored(&lost.options());
    let Answer::Claimed(second) = begin(&store, &undated("new-2")).await else { panic!("new") };
    assert!(second.fence > first.fence, "{second:?} after {first:?}");
    let Answer::Held(held) = begin(&store, &lost.lost).await else { panic!("it may be lost") };
    assert!(held.fence.get() > lost.highest_fence, "of what is held too: {held:?}");
}

/// A store that was restored is moved: what its restore may have lost stays held, and whoever moves
/// it is told so.
#[tokio::test]
async fn what_an_earlier_restore_may_have_lost_is_held_also_after_a_move() {
    let lost = Lost::new().await;
    let (to, store) = lost.restored(&lost.options());
    let names = ["moved-backup", "moved"].map(|name| to.with_file_name(name));
    let [backup, moved] = &names;
    store.backup(backup).await.unwrap();
    drop(store);
    let options = lost.options().accept_lost();
    let restored = restore(backup, moved, &options, &mut |_| {}).unwrap();
    assert!(restored.held.is_none() && restored.held_before, "{restored:?}");
    let store = open(moved, &lost.clock);
    assert!(!warnings(&store).await.is_empty());
    let held = begin(&store, &lost.lost).await;
    assert!(matches!(held, Answer::Held(_)), "it is executed again: {held:?}");
}

/// The store was once open under a clock that was ahead, and its time still is.
#[tokio::test]
async fn undated_keys_are_held_for_a_while_also_where_the_stores_time_is_ahead() {
    let place = tempfile::tempdir().unwrap();
    let names = ["store", "backup", "restored"].map(|name| place.path().join(name));
    let [path, backup, to] = &names;
    let ahead = ManualClock::starting_at(START.after(2 * HOUR));
    done(&Engine::new(open(path, &ahead)), &undated("first")).await;
    let clock = ManualClock::starting_at(START);
    let store = open(path, &clock);
    store.backup(backup).await.unwrap();
    done(&Engine::new(store), &undated("lost")).await;
    clock.advance(MINUTE);
    let options = RestoreOptions::default().clock(clock.clone()).hold_undated(HOUR);
    let restored = restore(backup, to, &options, &mut |_| {}).unwrap();
    assert_eq!(restored.undated_until, Some(START.after(MINUTE).after(HOUR)));
    let store = open(to, &clock);
    let held = begin(&store, &undated("lost")).await;
    assert!(matches!(held, Answer::Held(_)), "it is executed again: {held:?}");
    clock.advance(HOUR);
    let new = begin(&store, &undated("another")).await;
    assert!(matches!(new, Answer::Claimed(_)), "{new:?}");
}

/// A claim was taken under a clock that was ahead; then the time was brought back, and the store
/// was backed up before it was closed.
#[tokio::test]
async fn what_was_interrupted_under_a_wrong_clock_is_unknown_too() {
    let place = tempfile::tempdir().unwrap();
    let names = ["store", "backup", "restored"].map(|name| place.path().join(name));
    let [path, backup, to] = &names;
    let interrupted = operation(Key::client("interrupted").unwrap(), OnLapsed::Resume);
    {
        let ahead = ManualClock::starting_at(START.after(1000 * HOUR));
        let store = open(path, &ahead);
        let begin = Step::begin(&interrupted, Owner::new("a"), Token(1));
        assert!(matches!(store.apply(&begin).await.unwrap(), Answer::Claimed(_)));
    }
    let clock = ManualClock::starting_at(START);
    let builder = EmbeddedStore::builder(path).clock(clock.clone()).reset_clock_floor();
    let store = builder.open().unwrap();
    store.backup(backup).await.unwrap();
    clock.advance(MINUTE);
    // It goes on after the backup, and then the store is lost.
    done(&Engine::new(store), &interrupted).await;
    clock.advance(MINUTE);
    let options = RestoreOptions::default().clock(clock.clone());
    restore(backup, to, &options, &mut |_| {}).unwrap();
    let store = open(to, &clock);
    let held = begin(&store, &interrupted).await;
    assert!(matches!(held, Answer::Held(_)), "it is executed again: {held:?}");
}

/// The time of a restored store is brought back: what it does from then on was not lost.
#[tokio::test]
async fn what_fails_after_the_restore_is_tried_again_also_once_the_time_was_brought_back() {
    let place = tempfile::tempdir().unwrap();
    let names = ["store", "backup", "restored"].map(|name| place.path().join(name));
    let [path, backup, to] = &names;
    let ahead = ManualClock::starting_at(START.after(1000 * HOUR));
    done(&Engine::new(open(path, &ahead)), &undated("first")).await;
    let clock = ManualClock::starting_at(START);
    let store = open(path, &clock);
    store.backup(backup).await.unwrap();
    drop(store);
    let options = RestoreOptions::default().clock(clock.clone());
    restore(backup, to, &options, &mut |_| {}).unwrap();
    clock.advance(HOUR);
    let builder = EmbeddedStore::builder(to).clock(clock.clone()).reset_clock_floor();
    let engine = Engine::new(builder.open().unwrap());
    let new = undated("new");
    let busy = async |_| Err(HandlerError::Retryable(Outcome::bytes("busy")));
    let ran = engine.run(&new, busy).await.unwrap();
    assert!(matches!(ran, Ran::Failed(_)), "{ran:?}");
    clock.advance(HOUR);
    done(&engine, &new).await;
}

/// It failed under a clock that was ahead, and went on after the backup; later the time comes to
/// where it was written.
#[tokio::test]
async fn what_waited_under_a_wrong_clock_stays_unknown_when_its_time_has_come() {
    let place = tempfile::tempdir().unwrap();
    let names = ["store", "backup", "restored"].map(|name| place.path().join(name));
    let [path, backup, to] = &names;
    let waiting = undated("waiting");
    {
        let ahead = ManualClock::starting_at(START.after(48 * HOUR));
        let busy = async |_| Err(HandlerError::Retryable(Outcome::bytes("busy")));
        let ran = Engine::new(open(path, &ahead)).run(&waiting, busy).await.unwrap();
        assert!(matches!(ran, Ran::Failed(_)), "{ran:?}");
    }
    let clock = ManualClock::starting_at(START);
    let builder = EmbeddedStore::builder(path).clock(clock.clone()).reset_clock_floor();
    let store = builder.open().unwrap();
    clock.advance(HOUR);
    store.backup(backup).await.unwrap();
    // It goes on after the backup, and then the store is lost.
    done(&Engine::new(store), &waiting).await;
    clock.advance(HOUR);
    let options = RestoreOptions::default().clock(clock.clone());
    restore(backup, to, &options, &mut |_| {}).unwrap();
    clock.set(START.after(49 * HOUR));
    let store = open(to, &clock);
    let held = begin(&store, &waiting).await;
    assert!(matches!(held, Answer::Held(_)), "it is executed again: {held:?}");
}

/// The first restored store does not come up for long; its process is started again and again,
/// ten times a second. Then the same backup is restored once more.
#[tokio::test]
async fn fences_go_on_above_those_of_an_earlier_restore_that_was_opened_often() {
    let lost = Lost::new().await;
    let (to, store) = lost.restored(&lost.options());
    drop(store);
    let mut highest = 0;
    for number in 0..10 {
        lost.clock.advance(Duration::from_millis(100));
        let store = open(&to, &lost.clock);
        let claimed = begin(&store, &undated(&format!("again-{number}"))).await;
        let Answer::Claimed(claim) = claimed else { panic!("it was new") };
        highest = claim.fence.get();
    }
    let again = lost.place.path().join("restored-again");
    restore(&lost.backup, &again, &lost.options(), &mut |_| {}).unwrap();
    let store = open(&again, &lost.clock);
    let claimed = begin(&store, &undated("another")).await;
    let Answer::Claimed(claim) = claimed else { panic!("it was new") };
    assert!(claim.fence.get() > highest, "{} after {highest}", claim.fence);
}
