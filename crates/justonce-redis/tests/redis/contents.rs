//! What others do to the keys of a store: damage is noticed, never acted on.

use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Records, Stored};
use justonce_core::{
    Action, Answer, Checkpoint, Effect, Fence, Lost, OnLapsed, RecordId, Step, StoreErrorKind,
    StoreResult, UnknownReason,
};
use justonce_redis::RedisStore;
use justonce_testbed::RedisServer;
use redis::{Client, Cmd};

use crate::world::{begin, claim, complete, is_not_applied, operation, plain, run};

/// Sends commands with arguments that are no text.
fn raw(server: &RedisServer, command: &Cmd) -> Vec<u8> {
    let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    command.query(&mut connection).unwrap()
}

fn key(id: &RecordId) -> Vec<u8> {
    let [first, ..] = id.as_bytes();
    let mut key = format!("{{justonce:{first:02x}}}r").into_bytes();
    key.extend_from_slice(id.as_bytes());
    key
}

fn record(server: &RedisServer, id: &RecordId) -> Vec<u8> {
    raw(server, redis::cmd("GET").arg(key(id)))
}

fn put(server: &RedisServer, id: &RecordId, bytes: &[u8]) {
    let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("SET").arg(key(id)).arg(bytes).exec(&mut connection).unwrap();
}

/// A record with each byte of its head changed, but for the one that says whether somebody waits.
fn damaged_heads(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..77).filter(|at| *at != 3).map(|at| {
        let mut changed = whole.to_vec();
        changed[at] ^= 0x40;
        changed
    })
}

/// A record that ends too early, at every length.
fn cuts(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..whole.len()).map(|length| whole[..length].to_vec())
}

fn is_damaged<T>(result: StoreResult<T>) -> bool {
    result.is_err_and(|error| is_not_applied(&error, StoreErrorKind::Damaged))
}

#[tokio::test]
async fn every_cut_and_every_changed_byte_is_noticed() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = plain("damaged");
    let fence = run(&store, &operation, "a reply that is worth keeping").await;
    let id = operation.id();
    let whole = record(&server, &id);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        put(&server, &id, &changed);
        // The fourth byte says whether somebody waits; who is not there is not woken.
        assert!(at == 3 || is_damaged(store.get(&id).await), "byte {at}");
    }
    for length in 0..whole.len() {
        put(&server, &id, &whole[..length]);
        assert!(is_damaged(store.get(&id).await), "{length} bytes");
        assert!(is_damaged(begin(&store, &operation).await), "{length} bytes");
        assert!(is_damaged(complete(&store, &operation, fence, "x").await), "{length} bytes");
        assert_eq!(record(&server, &id), &whole[..length], "damage is left alone");
    }
    put(&server, &id, &whole);
    assert!(begin(&store, &operation).await.unwrap().completed().is_some());
}

#[tokio::test]
async fn a_damaged_claim_is_neither_renewed_nor_completed() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = plain("running");
    let fence = claim(&store, &operation).await.fence;
    let id = operation.id();
    let whole = record(&server, &id);
    for damaged in damaged_heads(&whole).chain(cuts(&whole)) {
        put(&server, &id, &damaged);
        assert!(is_damaged(complete(&store, &operation, fence, "x").await), "{damaged:?}");
        let renew = Step::new(id, Action::Renew(fence));
        assert!(is_damaged(store.apply(&renew).await), "{damaged:?}");
        assert_eq!(record(&server, &id), damaged, "damage is left alone");
    }
    put(&server, &id, &whole);
    assert_eq!(complete(&store, &operation, fence, "x").await.unwrap(), Answer::Applied);
    // The outcome says under which fence it was stored.
    let mut other = record(&server, &id);
    let of_outcome = other.windows(8).rposition(|part| part == fence.get().to_be_bytes()).unwrap();
    other[of_outcome] ^= 0x40;
    put(&server, &id, &other);
    assert!(is_damaged(complete(&store, &operation, fence, "x").await));
}

#[tokio::test]
async fn a_damaged_record_is_listed_apart_and_named_in_health() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let (whole, damaged) = (plain("whole"), plain("damaged"));
    for operation in [&whole, &damaged] {
        run(&store, operation, "a reply").await;
    }
    assert!(store.health().await.unwrap().is_good());
    put(&server, &damaged.id(), b"nothing that could be read");
    for _ in 0..2 {
        let page = store.list(&ListQuery::default()).await.unwrap();
        let listed: Vec<_> = page.records.iter().map(|summary| summary.id).collect();
        assert_eq!((listed, page.damaged), (vec![whole.id()], vec![damaged.id()]));
        let health = store.health().await.unwrap();
        assert_eq!((health.damaged.count, health.damaged.named), (1, vec![damaged.id()]));
    }
}

#[tokio::test]
async fn what_the_head_says_is_written_down_with_the_first_note() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = plain("noted");
    let fence = run(&store, &operation, "a reply that is worth keeping").await;
    let id = operation.id();
    let (short, before) = (record(&server, &id), store.get(&id).await.unwrap().unwrap());
    let names = |stored: &Stored| {
        let notes = stored.timeline.notes();
        notes.iter().map(|note| note.kind.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(names(&before), ["claimed", "completed"]);
    assert!(!short.windows(7).any(|part| part == b"claimed"), "the head says so");

    // Somebody whose fence is an older one is refused, and that is noted.
    let older = Fence::new(fence.get() - 1);
    let refused = complete(&store, &operation, older, "another reply").await.unwrap();
    assert_eq!(refused, Answer::Lost(Lost::Superseded));
    let after = store.get(&id).await.unwrap().unwrap();
    assert_eq!(names(&after), ["claimed", "completed", "refused"]);
    assert_eq!(after.timeline.notes()[..2], *before.timeline.notes(), "as they were");
    assert_eq!(after.entry, before.entry);
    // The same completion again is still the same.
    let same = complete(&store, &operation, fence, "a reply that is worth keeping").await;
    assert_eq!(same.unwrap(), Answer::Applied);

    // Notes that are written down are only checked for their form: a length, words, a moment and a
    // fence each.
    let long = record(&server, &id);
    let notes_from = long.windows(9).position(|part| part == b"\0\x07claimed").unwrap() - 2;
    let notes = notes_from..notes_from + long.len() - short.len();
    for at in (0..long.len()).filter(|at| !notes.contains(at)) {
        let mut changed = long.clone();
        changed[at] ^= 0x40;
        put(&server, &id, &changed);
        assert!(at == 3 || is_damaged(store.get(&id).await), "byte {at}");
    }
}

#[tokio::test]
async fn a_record_under_another_name_or_of_another_version_is_noticed() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let (one, two) = (plain("one"), plain("two"));
    run(&store, &one, "one").await;
    let bytes = record(&server, &one.id());
    put(&server, &two.id(), &bytes);
    assert!(is_damaged(begin(&store, &two).await));
    let mut newer = bytes.clone();
    newer[1] = 4;
    put(&server, &one.id(), &newer);
    let error = begin(&store, &one).await.unwrap_err();
    assert!(error.to_string().contains("version 4"), "{error}");
}

#[tokio::test]
async fn a_foreign_key_is_left_alone_and_hides_nothing() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let foreign = plain("foreign");
    let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("RPUSH").arg(key(&foreign.id())).arg("a").exec(&mut connection).unwrap();
    assert!(is_damaged(begin(&store, &foreign).await));
    assert!(is_damaged(store.get(&foreign.id()).await));

    let (good, bad) = (plain("good"), plain("bad"));
    run(&store, &good, "good").await;
    claim(&store, &bad).await;
    put(&server, &bad.id(), b"not a record");
    let page = store.list(&ListQuery::default()).await.unwrap();
    assert_eq!(page.records.len(), 1, "{page:?}");
    assert_eq!(page.records[0].id, good.id());
    store.sweep(usize::MAX).await.unwrap();
}

#[tokio::test]
async fn a_record_that_was_removed_by_hand_leaves_the_index_with_the_next_sweep() {
    let server = RedisServer::start().unwrap();
    let clock = justonce_core::ManualClock::default();
    let store = RedisStore::builder(server.url()).clock(clock.clone()).open().await.unwrap();
    let operation = plain("removed");
    run(&store, &operation, "done").await;
    let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("DEL").arg(key(&operation.id())).exec(&mut connection).unwrap();
    store.apply(&Step::new(operation.id(), Action::Sweep)).await.unwrap();
    assert_eq!(store.stats().await.unwrap(), justonce_core::store::Stats::default());
}

#[tokio::test]
async fn a_damaged_claim_that_has_lapsed_is_not_taken_over() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = plain("lapsed");
    let fence = claim(&store, &operation).await.fence;
    let id = operation.id();
    let gone = Step::new(id, Action::Abandon(fence, UnknownReason::Dropped.into()));
    assert_eq!(store.apply(&gone).await.unwrap(), Answer::Applied);
    let whole = record(&server, &id);
    for damaged in damaged_heads(&whole).chain(cuts(&whole)) {
        put(&server, &id, &damaged);
        assert!(is_damaged(begin(&store, &operation).await), "{damaged:?}");
        assert_eq!(record(&server, &id), damaged, "damage is left alone");
    }
    put(&server, &id, &whole);
    assert_eq!(claim(&store, &operation).await.attempt, 2, "the whole record is taken over");
}

/// *Not applied* is said only where nothing was.
#[tokio::test]
async fn a_takeover_that_finds_a_damaged_checkpoint_is_not_called_not_applied() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    let operation = operation("resumed", Duration::from_secs(30), OnLapsed::Resume);
    let fence = claim(&store, &operation).await.fence;
    let point = Checkpoint::new("half", b"way there".to_vec()).unwrap().numbered(1);
    let id = operation.id();
    let save = Step::new(id, Action::Checkpoint(fence, point));
    assert_eq!(store.apply(&save).await.unwrap(), Answer::Applied);
    // The owner goes, and a bit of the checkpoint turns.
    let gone = Step::new(id, Action::Abandon(fence, UnknownReason::Dropped.into()));
    assert_eq!(store.apply(&gone).await.unwrap(), Answer::Applied);
    let mut changed = record(&server, &id);
    *changed.last_mut().unwrap() ^= 0x40;
    put(&server, &id, &changed);
    let error = begin(&store, &operation).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Damaged, "{error}");
    if error.effect() == Effect::NotApplied {
        assert!(record(&server, &id) == changed, "it was applied all the same: {error}");
    }
}
