//! What waits for a retry lies on disk, and whoever waits for an operation is told with the
//! wake-up.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::store::{Health, ListQuery, Maintenance, Observed, Records, Seen};
use justonce_core::{
    BackOff, BusyWhy, Engine, Existing, HandlerError, Key, ManualClock, OnConcurrent, OnFailure,
    OnLapsed, Operation, Outcome, Policy, Ran, RunError, Scope, StateName, StoreErrorKind,
    Timestamp,
};
use justonce_embedded::{Bounds, EmbeddedStore};
use tokio::task::JoinSet;

const MINUTE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// An operation that may be tried again a minute after it failed, three times in all.
fn retried(key: &str) -> Operation {
    let back_off = BackOff { first: MINUTE, max: MINUTE };
    let policy = Policy::builder()
        .on_lapsed(OnLapsed::Rerun)
        .on_failure(OnFailure::Retry(back_off))
        .max_attempts(std::num::NonZeroU32::new(3))
        .retention(60 * MINUTE)
        .build()
        .unwrap();
    Operation::without_fingerprint(Scope::global(), Key::client(key).unwrap()).with_policy(policy)
}

fn open(directory: &Path, clock: &ManualClock, bounds: Bounds) -> EmbeddedStore {
    EmbeddedStore::builder(directory).clock(clock.clone()).bounds(bounds).open().unwrap()
}

async fn fails(engine: &Engine, operation: &Operation) -> u32 {
    let Begun::Claimed(mut claim) = engine.begin(operation).await.unwrap() else {
        panic!("it can be claimed");
    };
    let attempt = claim.attempt();
    let _ = claim.fail(Outcome::bytes("away")).await.unwrap();
    attempt
}

fn used(health: &Health, bound: &str) -> u64 {
    health.bounds.iter().find(|found| found.name == bound).unwrap().used
}

/// An outage leaves as many of these as there are requests while it lasts.
#[tokio::test]
async fn what_waits_for_a_retry_takes_no_place_of_what_is_in_progress() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(START);
    let bounds = Bounds { unsettled_records: 5, ..Bounds::default() };
    let store = Arc::new(open(directory.path(), &clock, bounds));
    let engine = Engine::builder_shared(store.clone()).build();
    for key in 0..50 {
        assert_eq!(fails(&engine, &retried(&format!("key-{key}"))).await, 1);
    }
    assert_eq!(used(&store.health().await.unwrap(), "unsettled_records"), 0);
    let mut claims = Vec::new();
    for key in 0..5 {
        let Begun::Claimed(claim) = engine.begin(&retried(&format!("new-{key}"))).await.unwrap()
        else {
            panic!("there is room");
        };
        claims.push(claim);
    }
    let full = store.health().await.unwrap();
    assert_eq!(used(&full, "unsettled_records"), 5);
    assert!(used(&full, "unsettled_bytes") > 5 * 100);
    let error = engine.begin(&retried("one-more")).await.unwrap_err().to_string();
    assert!(error.contains("unsettled_records") && error.contains("resolve"), "{error}");
    // What runs can end, and makes room.
    let _ = claims.pop().unwrap().complete(Outcome::empty()).await.unwrap();
    assert!(matches!(engine.begin(&retried("one-more")).await.unwrap(), Begun::Claimed(_)));
}

#[tokio::test]
async fn after_a_restart_a_failed_operation_waits_is_counted_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(START);
    let keys = 0..20;
    let engine = Engine::new(open(directory.path(), &clock, Bounds::default()));
    for key in keys.clone() {
        fails(&engine, &retried(&format!("key-{key}"))).await;
    }
    // A release after a failed attempt leaves a record too.
    clock.advance(2 * MINUTE);
    let Begun::Claimed(mut claim) = engine.begin(&retried("key-0")).await.unwrap() else {
        panic!("its back-off is over");
    };
    assert_eq!(claim.attempt(), 2);
    let _ = claim.release().await.unwrap();
    fails(&engine, &retried("key-1")).await;
    let before = engine.store().stats().await.unwrap();
    drop((claim, engine));

    for _ in 0..2 {
        let store = Arc::new(open(directory.path(), &clock, Bounds::default()));
        assert_eq!(used(&store.health().await.unwrap(), "unsettled_records"), 0);
        assert_eq!(store.stats().await.unwrap(), before, "what is counted is counted once");
        assert_eq!((before.failed.count, before.released.count), (19, 1));
        for (state, count) in [(StateName::Failed, 19), (StateName::Released, 1)] {
            let query = ListQuery { state: Some(state), ..ListQuery::default() };
            assert_eq!(store.list(&query).await.unwrap().records.len(), count, "{state}");
        }
        let engine = Engine::builder_shared(store).build();
        let Some(Existing::Busy(busy)) = engine.peek(&retried("key-1")).await.unwrap() else {
            panic!("its second back-off has just begun");
        };
        assert_eq!(busy.why, BusyWhy::BackOff);
        assert!(MINUTE / 2 <= busy.left && busy.left <= MINUTE, "{:?}", busy.left);
    }
    let store = Arc::new(open(directory.path(), &clock, Bounds::default()));
    let engine = Engine::builder_shared(store.clone()).build();
    clock.advance(2 * MINUTE);
    assert_eq!(fails(&engine, &retried("key-0")).await, 2, "a release does not count");
    let order = retried("key-1");
    let third = engine.run(&order, async |context| {
        assert_eq!(context.attempt(), 3);
        Err(HandlerError::retryable("away"))
    });
    assert!(matches!(third.await.unwrap(), Ran::Failed(_)));
    let last = engine.run(&order, async |_| panic!("it was the last attempt")).await;
    assert!(matches!(last.unwrap(), Ran::FailedBefore(_)));

    // Time ends them like everything else, wherever they lie.
    clock.advance(200 * MINUTE);
    while engine.sweep(7).await.unwrap().more {}
    let left = store.stats().await.unwrap();
    assert_eq!((left.failed.count, left.released.count, left.in_progress.count), (0, 0, 0));
    for key in keys {
        assert_eq!(store.get(&retried(&format!("key-{key}")).id()).await.unwrap(), None);
    }
}

/// What was counted when the store was opened is counted in one place, and removed in many.
#[tokio::test]
async fn what_a_sweep_removes_after_a_restart_is_not_counted_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(START);
    let engine = Engine::new(open(directory.path(), &clock, Bounds::default()));
    for key in 0..20 {
        let operation = retried(&format!("key-{key}"));
        engine.run(&operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap();
    }
    drop(engine);
    let engine = Engine::new(open(directory.path(), &clock, Bounds::default()));
    assert_eq!(engine.store().stats().await.unwrap().completed.count, 20);
    clock.advance(100 * MINUTE);
    while engine.sweep(7).await.unwrap().more {}
    let left = engine.store().stats().await.unwrap();
    assert_eq!((left.completed.count, left.completed.bytes), (0, 0));
}

/// Owners take precedence: what runs can end while new operations are refused.
#[tokio::test]
async fn at_the_bound_of_the_queue_begins_are_refused_before_completions() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(START);
    for (bound, bounds) in [
        ("queued_writes", Bounds { queued_writes: 0, ..Bounds::default() }),
        ("queued_bytes", Bounds { queued_bytes: 0, ..Bounds::default() }),
    ] {
        let store = open(directory.path(), &clock, bounds);
        let error = Engine::new(store).begin(&retried(bound)).await.unwrap_err();
        let RunError::Store(error) = error else { panic!("{error}") };
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(error.to_string().contains(bound), "{error}");
    }
}

#[tokio::test]
async fn one_completion_tells_every_waiter_without_another_step() {
    const WAITERS: usize = 50;
    let directory = tempfile::tempdir().unwrap();
    let calls: Arc<Mutex<BTreeMap<&str, usize>>> = Arc::default();
    let seen = Arc::clone(&calls);
    let observer = move |call: Seen<'_>| *seen.lock().unwrap().entry(call.call).or_default() += 1;
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let engine = Engine::new(Observed::new(store, observer));
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Hold] {
        calls.lock().unwrap().clear();
        let policy = Policy::builder().on_lapsed(on_lapsed).build().unwrap();
        let key = Key::client(format!("{on_lapsed:?}")).unwrap();
        let operation = Operation::without_fingerprint(Scope::global(), key)
            .with_policy(policy)
            .on_concurrent(OnConcurrent::Wait(MINUTE));
        let Begun::Claimed(mut claim) = engine.begin(&operation).await.unwrap() else {
            panic!("it was new");
        };
        let mut waiting = JoinSet::new();
        for _ in 0..WAITERS {
            let (engine, operation) = (engine.clone(), operation.clone());
            waiting.spawn(async move {
                engine.run(&operation, async |_| panic!("it runs already")).await.unwrap()
            });
        }
        while engine.load().waiting < WAITERS {
            tokio::task::yield_now().await;
        }
        let _ = claim.complete(Outcome::bytes("done")).await.unwrap();
        while let Some(ran) = waiting.join_next().await {
            assert_eq!(ran.unwrap(), Ran::Replayed(Outcome::bytes("done")));
        }
        let calls = calls.lock().unwrap();
        assert_eq!((calls.get("begin"), calls.get("peek")), (Some(&(WAITERS + 1)), None));
        assert_eq!((calls.get("complete"), calls.get("settled")), (Some(&1), Some(&WAITERS)));
    }
}
