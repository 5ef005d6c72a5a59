//! A cache in front of a store: what it answers, what it costs when it is away, what it counts.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::store::{
    CACHE_PAUSE, CACHE_WAIT, CacheEvent, Cached, CachedOutcome, Lookup, NearCache, OutcomeCache,
    PutPermit, Records,
};
use justonce_core::{
    Action, Answer, Engine, Existing, Failure, FailureKind, Fence, Fingerprint, Lost, OnLapsed,
    Operation, Outcome, Owner, Ran, RecordId, Resolution, Resolve, Resolver, Scope, Step,
    StoreError, StoreErrorKind, StoreResult, Token, UnknownReason, Why,
};
use tokio::time::Instant;

use crate::common::erasable::Erasable;
use crate::common::handlers::{Count, done};
use crate::common::world::{SECOND, named, pass, policy};

fn order(key: &str) -> Operation {
    named(key, policy(OnLapsed::Hold))
}

fn begin(operation: &Operation) -> Step {
    Step::begin(operation, Owner::new("test"), Token(7))
}

async fn claim(store: &impl Records, operation: &Operation) -> Fence {
    match store.apply(&begin(operation)).await.unwrap() {
        Answer::Claimed(claimed) => claimed.fence,
        other => panic!("it must be claimed: {other:?}"),
    }
}

/// Begins and completes an operation.
async fn settle(store: &impl Records, operation: &Operation) {
    let fence = claim(store, operation).await;
    let complete = Step::new(operation.id(), Action::Complete(fence, done()));
    assert_eq!(store.apply(&complete).await.unwrap(), Answer::Applied);
}

/// A near cache that can be made to fail or to hang, as one behind a network would.
#[derive(Clone, Default)]
struct Remote {
    near: NearCache,
    mood: Arc<AtomicU8>,
    calls: Count,
}

const WELL: u8 = 0;
const FAILS: u8 = 1;
const HANGS: u8 = 2;

impl Remote {
    fn is(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    async fn reach(&self) -> StoreResult<()> {
        self.calls.add();
        match self.mood.load(Ordering::SeqCst) {
            FAILS => Err(StoreError::not_applied(StoreErrorKind::Unavailable, "away")),
            HANGS => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

impl OutcomeCache for Remote {
    async fn get(&self, id: &RecordId, asked: &Fingerprint) -> StoreResult<Lookup> {
        self.reach().await?;
        self.near.get(id, asked).await
    }

    async fn put(&self, id: &RecordId, kept: &CachedOutcome, permit: PutPermit) -> StoreResult<()> {
        self.reach().await?;
        self.near.put(id, kept, permit).await
    }

    async fn forget(&self, id: &RecordId) -> StoreResult<()> {
        self.reach().await?;
        self.near.forget(id).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_here_does_not_reach_the_store() {
    let store = Erasable::new();
    let near = NearCache::default();
    let engine = Engine::new(Cached::new(store.clone(), near.clone()));
    let operation = order("order-17");
    let first = engine.run(&operation, async |_| Ok(done())).await.unwrap();
    assert_eq!((first, store.steps.get()), (Ran::Executed(done()), 2));
    for _ in 0..10 {
        let again = engine.run(&operation, async |_| panic!("it runs once")).await.unwrap();
        assert_eq!(again, Ran::Replayed(done()));
    }
    assert_eq!(store.steps.get(), 2, "two steps for the first, none for the others");
    assert_eq!((near.stats().hits, near.stats().misses), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_elsewhere_asks_the_store_once() {
    let store = Erasable::new();
    let (here, elsewhere) = (Cached::near(store.clone()), Cached::near(store.clone()));
    let operation = order("order-17");
    settle(&here, &operation).await;
    for _ in 0..10 {
        let answer = elsewhere.apply(&begin(&operation)).await.unwrap();
        assert_eq!(answer.completed(), Some(&done()));
    }
    assert_eq!(store.steps.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_replayed_as_one() {
    let store = Erasable::new();
    let cached = Cached::near(store.clone());
    let operation = order("order-17");
    let fence = claim(&cached, &operation).await;
    let failure = Failure { outcome: done(), kind: FailureKind::Permanent, jitter: 0 };
    let fail = Step::new(operation.id(), Action::Fail(fence, failure));
    assert_eq!(cached.apply(&fail).await.unwrap(), Answer::Applied);
    for _ in 0..3 {
        let answer = cached.apply(&begin(&operation)).await.unwrap();
        let Answer::Existing(existing) = answer else { panic!("it has failed") };
        assert_eq!(existing.failed(), Some(&done()));
    }
    assert_eq!(store.steps.get(), 3, "begin, fail and the first duplicate");
}

#[tokio::test(start_paused = true)]
async fn another_fingerprint_is_for_the_store_to_judge() {
    let store = Erasable::new();
    let cached = Cached::near(store.clone());
    let asked = |text: &str| Fingerprint::of(&Scope::global(), text.as_bytes());
    let operation = order("order-17").with_fingerprint(asked("5 to bob"));
    settle(&cached, &operation).await;
    let other = operation.clone().with_fingerprint(asked("6 to bob"));
    let answer = cached.apply(&begin(&other)).await.unwrap();
    assert_eq!(answer, Answer::Existing(Existing::Mismatch));
    let unchecked = Step::new(operation.id(), Action::Peek(Fingerprint::UNCHECKED));
    for _ in 0..2 {
        let answer = cached.apply(&unchecked).await.unwrap();
        assert_eq!(answer.completed(), Some(&done()));
    }
    // The outcome is now kept for a fingerprint that agrees with all. Still no other is answered.
    let answer = cached.apply(&begin(&other)).await.unwrap();
    assert_eq!(answer, Answer::Existing(Existing::Mismatch));
}

#[tokio::test(start_paused = true)]
async fn a_claim_drops_what_was_kept_for_another_fingerprint() {
    let store = Erasable::new();
    let cached = Cached::near(store.clone());
    let asked = |text: &str| Fingerprint::of(&Scope::global(), text.as_bytes());
    let operation = order("order-17").with_fingerprint(asked("5 to bob"));
    settle(&cached, &operation).await;
    store.erase();
    let other = operation.clone().with_fingerprint(asked("6 to bob"));
    claim(&cached, &other).await;
    let answer = cached.apply(&begin(&operation)).await.unwrap();
    // The token is the same, so it is the same call.
    assert!(answer.completed().is_none(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_erased_elsewhere_is_seen_when_the_age_is_over() {
    let store = Erasable::new();
    let near = NearCache::builder().age(7 * SECOND).build();
    let cached = Cached::new(store.clone(), near);
    let operation = order("order-17");
    settle(&cached, &operation).await;
    store.erase();
    pass(7 * SECOND - Duration::from_millis(1)).await;
    let answer = cached.apply(&begin(&operation)).await.unwrap();
    assert_eq!(answer.completed(), Some(&done()));
    pass(Duration::from_millis(1)).await;
    assert!(matches!(cached.apply(&begin(&operation)).await.unwrap(), Answer::Claimed(_)));
}

#[tokio::test(start_paused = true)]
async fn a_resolution_is_seen_at_once() {
    let store = Erasable::new();
    let cached = Cached::near(store.clone());
    let operation = order("order-17");
    let fence = claim(&cached, &operation).await;
    let id = operation.id();
    let abandon = Step::new(id, Action::Abandon(fence, UnknownReason::Reported.into()));
    assert!(matches!(cached.apply(&abandon).await.unwrap(), Answer::Held(_)));
    let resolve = Resolve {
        resolution: Resolution::Complete(done()),
        by: Resolver::operator("ada"),
        why: Why::new("asked the bank"),
    };
    let resolve = Step::new(id, Action::Resolve(fence, Box::new(resolve)));
    assert_eq!(cached.apply(&resolve).await.unwrap(), Answer::Applied);
    let answer = cached.apply(&begin(&operation)).await.unwrap();
    assert_eq!(answer.completed(), Some(&done()));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_hangs_costs_one_wait_and_is_left_alone() {
    let (store, remote) = (Erasable::new(), Remote::default());
    let cached = Cached::new(store.clone(), remote.clone());
    let operation = order("order-17");
    settle(&cached, &operation).await;
    remote.is(HANGS);
    let start = Instant::now();
    for _ in 0..100 {
        let answer = cached.apply(&begin(&operation)).await.unwrap();
        assert_eq!(answer.completed(), Some(&done()));
    }
    assert_eq!(start.elapsed(), CACHE_WAIT);
    let calls = remote.calls.get();
    pass(CACHE_PAUSE).await;
    let start = Instant::now();
    for _ in 0..100 {
        assert!(cached.apply(&begin(&operation)).await.unwrap().completed().is_some());
    }
    assert_eq!((start.elapsed(), remote.calls.get() - calls), (CACHE_WAIT, 1), "one tries again");
    remote.is(WELL);
    pass(CACHE_PAUSE).await;
    let steps = store.steps.get();
    for _ in 0..100 {
        assert!(cached.apply(&begin(&operation)).await.unwrap().completed().is_some());
    }
    assert_eq!(store.steps.get(), steps, "it has come back with what it had");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_hangs_holds_nobody_up_twice() {
    // A hundred at once all find it hanging, and all wait side by side.
    let (store, remote) = (Erasable::new(), Remote::default());
    let cached = Arc::new(Cached::new(store, remote.clone()).wait(2 * SECOND));
    remote.is(HANGS);
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let (cached, operation) = (Arc::clone(&cached), order(&format!("order-{number}")));
        tasks.spawn(async move { settle(&*cached, &operation).await });
    }
    assert_eq!(tasks.join_all().await.len(), 100);
    assert_eq!(start.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_put_that_hangs_is_bounded_too() {
    let (store, remote) = (Erasable::new(), Remote::default());
    let cached = Cached::new(store, remote.clone());
    let operation = order("order-17");
    let fence = claim(&cached, &operation).await;
    remote.is(HANGS);
    let start = Instant::now();
    let complete = Step::new(operation.id(), Action::Complete(fence, done()));
    assert_eq!(cached.apply(&complete).await.unwrap(), Answer::Applied);
    assert_eq!(start.elapsed(), CACHE_WAIT);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_fails_is_only_told_about() {
    let (store, remote) = (Erasable::new(), Remote::default());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let cached = Cached::new(store, remote.clone()).observer(move |event: CacheEvent<'_>| {
        log.lock().unwrap().push(match event {
            CacheEvent::Failed(error) => format!("failed: {error}"),
            other => format!("{other:?}"),
        });
    });
    let operation = order("order-17");
    settle(&cached, &operation).await;
    cached.apply(&begin(&operation)).await.unwrap();
    remote.is(FAILS);
    for _ in 0..2 {
        let answer = cached.apply(&begin(&operation)).await.unwrap();
        assert_eq!(answer.completed(), Some(&done()));
    }
    let failed = "failed: away (the step was not applied)";
    assert_eq!(*seen.lock().unwrap(), ["Missed", "Hit", failed, "Skipped"]);
}

#[tokio::test(start_paused = true)]
async fn an_ill_cache_is_still_told_to_forget() {
    let (store, remote) = (Erasable::new(), Remote::default());
    let cached = Cached::new(store.clone(), remote.clone());
    let operation = order("order-17");
    settle(&cached, &operation).await;
    remote.is(FAILS);
    cached.apply(&begin(&operation)).await.unwrap();
    remote.is(WELL);
    store.erase();
    cached.forget(&operation.id()).await;
    assert!(matches!(cached.apply(&begin(&operation)).await.unwrap(), Answer::Claimed(_)));
}

#[tokio::test(start_paused = true)]
async fn what_is_expired_or_erased_here_is_dropped_at_once() {
    for give_up in [Action::Expire, Action::Erase] {
        let (store, remote) = (Erasable::new(), Remote::default());
        let cached = Cached::new(store.clone(), remote.clone());
        let operation = order("order-17");
        let fence = claim(&cached, &operation).await;
        let complete = Step::new(operation.id(), Action::Complete(fence, done()));
        cached.apply(&complete).await.unwrap();
        let steps = store.steps.get();
        let replayed = cached.apply(&begin(&operation)).await.unwrap();
        assert_eq!((replayed.completed(), store.steps.get()), (Some(&done()), steps));
        let old = Step::new(operation.id(), give_up(fence.next()));
        assert_eq!(cached.apply(&old).await.unwrap(), Answer::Lost(Lost::Superseded));
        assert_eq!(cached.apply(&begin(&operation)).await.unwrap().completed(), Some(&done()));
        let step = Step::new(operation.id(), give_up(fence));
        assert_eq!(cached.apply(&step).await.unwrap(), Answer::Applied);
        assert!(matches!(cached.apply(&begin(&operation)).await.unwrap(), Answer::Claimed(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_erased_elsewhere_is_replayed_here_for_no_longer_than_the_age() {
    let store = Erasable::new();
    let near = NearCache::builder().age(60 * SECOND).build();
    let (here, elsewhere) = (Cached::new(store.clone(), near), Cached::near(store.clone()));
    let operation = order("order-17");
    let fence = claim(&here, &operation).await;
    let complete = Step::new(operation.id(), Action::Complete(fence, done()));
    here.apply(&complete).await.unwrap();
    let erase = Step::new(operation.id(), Action::Erase(fence));
    assert_eq!(elsewhere.apply(&erase).await.unwrap(), Answer::Applied);
    pass(59 * SECOND).await;
    assert_eq!(here.apply(&begin(&operation)).await.unwrap().completed(), Some(&done()));
    pass(SECOND).await;
    assert!(matches!(here.apply(&begin(&operation)).await.unwrap(), Answer::Claimed(_)));
}

#[tokio::test(start_paused = true)]
async fn a_near_cache_is_bounded_in_bytes() {
    const LIMIT: u64 = 1 << 20;
    let near = NearCache::builder().bytes(LIMIT).build();
    let cached = Cached::new(Erasable::new(), near.clone());
    for number in 0..2000 {
        let operation = order(&format!("order-{number}"));
        let fence = claim(&cached, &operation).await;
        let outcome = Outcome::builder().status(200).header("x-n", "1").body(vec![7; 4096]);
        let outcome = outcome.build().unwrap();
        let complete = Step::new(operation.id(), Action::Complete(fence, outcome));
        cached.apply(&complete).await.unwrap();
        assert!(near.stats().bytes <= LIMIT, "{:?}", near.stats());
    }
    let stats = near.stats();
    assert!((100..256).contains(&stats.outcomes), "{stats:?}");
    assert!(stats.bytes >= stats.outcomes * 4096, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_small_outcome_does_not_hold_the_buffer_it_came_in() {
    let buffer = bytes::Bytes::from(vec![7; 1 << 20]);
    let outcome = Outcome::bytes(buffer.slice(10..20));
    let cached = Cached::near(Erasable::new());
    let operation = order("order-17");
    let fence = claim(&cached, &operation).await;
    let complete = Step::new(operation.id(), Action::Complete(fence, outcome.clone()));
    cached.apply(&complete).await.unwrap();
    let answer = cached.apply(&begin(&operation)).await.unwrap();
    assert_eq!(answer.completed(), Some(&outcome));
    let body = answer.completed().unwrap().body().unwrap().as_ptr_range();
    assert!(!buffer.as_ptr_range().contains(&body.start), "it is a copy");
}
