//! What a cache must never do: bring back what is over. Each test makes a put come late.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper that cannot set the scene fails its test"
)]

#[allow(dead_code, reason = "each test file uses its part of the common helpers")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::erasable::Erasable;
use common::handlers::done;
use common::world::{SECOND, operation, pass, policy};
use justonce_core::store::{Cached, Kept, Looked, NearCache, OutcomeCache, Records};
use justonce_core::{
    Action, AfterRetention, Answer, Claimed, Existing, Fingerprint, OnLapsed, Operation, Outcome,
    Owner, RecordId, Step, Token,
};

/// Two processes with a near cache each on one store; time is virtual.
struct Scene {
    store: Erasable,
    here: Arc<Cached<Erasable, NearCache>>,
    elsewhere: Cached<Erasable, NearCache>,
    operation: Operation,
}

impl Scene {
    fn new(retention: Duration) -> Self {
        let store = Erasable::new();
        let after = AfterRetention::Refuse(100 * SECOND);
        let policy = policy(OnLapsed::Rerun).retention(retention).after_retention(after);
        Self {
            here: Arc::new(Cached::near(store.clone())),
            elsewhere: Cached::near(store.clone()),
            operation: operation(policy),
            store,
        }
    }

    fn id(&self) -> RecordId {
        self.operation.id()
    }

    fn begin(&self) -> Step {
        Step::begin(&self.operation, Owner::new("test"), Token(7))
    }

    async fn asked(&self) -> Answer {
        self.here.apply(&self.begin()).await.unwrap()
    }

    async fn claimed(&self) -> Claimed {
        let Answer::Claimed(claimed) = self.asked().await else { panic!("it must be claimed") };
        claimed
    }

    fn complete(&self, claimed: &Claimed) -> Step {
        Step::new(self.id(), Action::Complete(claimed.fence, done()))
    }

    /// The operation is completed by another process, so that this one knows nothing.
    async fn completed_elsewhere(&self) {
        let begun = self.elsewhere.apply(&self.begin()).await.unwrap();
        let Answer::Claimed(claimed) = begun else { panic!("it must be claimed") };
        let applied = self.elsewhere.apply(&self.complete(&claimed)).await.unwrap();
        assert_eq!(applied, Answer::Applied);
    }

    /// Takes a step here whose answer comes back after this time.
    async fn slowly(&self, step: Step, time: Duration) -> tokio::task::JoinHandle<Answer> {
        self.store.answers_take(time);
        let here = Arc::clone(&self.here);
        let task = tokio::spawn(async move { here.apply(&step).await.unwrap() });
        pass(Duration::from_millis(1)).await;
        self.store.answers_take(Duration::ZERO);
        task
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_an_erasure_is_not_kept_after_it() {
    let scene = Scene::new(3600 * SECOND);
    scene.completed_elsewhere().await;
    let late = scene.slowly(scene.begin(), SECOND).await;
    scene.store.erase();
    scene.here.forget(&scene.id()).await;
    assert_eq!(late.await.unwrap().completed(), Some(&done()), "it was true when it was asked");
    assert!(matches!(scene.asked().await, Answer::Claimed(_)), "the record was erased");
}

#[tokio::test(start_paused = true)]
async fn a_completion_from_before_an_erasure_is_not_kept_after_it() {
    let scene = Scene::new(3600 * SECOND);
    let claimed = scene.claimed().await;
    let late = scene.slowly(scene.complete(&claimed), SECOND).await;
    scene.store.erase();
    scene.here.forget(&scene.id()).await;
    assert_eq!(late.await.unwrap(), Answer::Applied, "it was stored, and then erased");
    assert!(matches!(scene.asked().await, Answer::Claimed(_)), "the record was erased");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_retention_is_not_kept() {
    let scene = Scene::new(2 * SECOND);
    scene.completed_elsewhere().await;
    let late = scene.slowly(scene.begin(), 3 * SECOND).await;
    assert_eq!(late.await.unwrap().completed(), Some(&done()));
    let answer = scene.asked().await;
    assert!(matches!(answer, Answer::Existing(Existing::Expired(_))), "{answer:?}");
    assert_eq!(scene.here.cache().stats().outcomes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_comes_back_after_the_lease_is_not_kept() {
    // Somebody else may have resolved it meanwhile, and then its retention began earlier.
    let scene = Scene::new(3600 * SECOND);
    let claimed = scene.claimed().await;
    let late = scene.slowly(scene.complete(&claimed), 31 * SECOND).await;
    assert_eq!(late.await.unwrap(), Answer::Applied);
    assert_eq!(scene.here.cache().stats().outcomes, 0);
}

#[tokio::test(start_paused = true)]
async fn the_age_counts_from_before_the_question() {
    let scene = Scene::new(3600 * SECOND);
    scene.completed_elsewhere().await;
    let late = scene.slowly(scene.begin(), 3 * SECOND).await;
    scene.store.erase();
    late.await.unwrap();
    assert!(scene.asked().await.completed().is_some(), "asked three seconds ago");
    pass(2 * SECOND).await;
    assert!(matches!(scene.asked().await, Answer::Claimed(_)), "asked five seconds ago");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_completion_does_not_make_the_retention_longer() {
    let scene = Scene::new(4 * SECOND);
    let claimed = scene.claimed().await;
    scene.here.apply(&scene.complete(&claimed)).await.unwrap();
    pass(3 * SECOND).await;
    assert_eq!(scene.here.apply(&scene.complete(&claimed)).await.unwrap(), Answer::Applied);
    pass(SECOND).await;
    let answer = scene.asked().await;
    assert!(matches!(answer, Answer::Existing(Existing::Expired(_))), "{answer:?}");
}

/// Threads that forget, put and look as fast as they can: whoever looks after a forget returned
/// never sees what was put with a ticket from before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_contention_nothing_forgotten_comes_back() {
    const ROUNDS: u64 = 20_000;
    let near = NearCache::builder().age(3600 * SECOND).build();
    let id = RecordId::from_bytes([7; 32]);
    // What the store has, and what the cache was told to forget up to.
    let (truth, forgotten) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (near, truth, forgotten) = (near.clone(), Arc::clone(&truth), Arc::clone(&forgotten));
        tasks.spawn(async move {
            let mut found = 0;
            while truth.load(Ordering::SeqCst) < ROUNDS {
                let floor = forgotten.load(Ordering::SeqCst);
                match near.get(&id, &Fingerprint::UNCHECKED).await.unwrap() {
                    Looked::Found(kept) => {
                        let version =
                            u64::from_le_bytes(kept.outcome.body().unwrap().try_into().unwrap());
                        assert!(version >= floor, "{version} came back after {floor}");
                        found += 1;
                    }
                    Looked::Nothing(ticket) | Looked::Other(ticket) => {
                        let version = truth.load(Ordering::SeqCst).to_le_bytes().to_vec();
                        let kept = Kept {
                            fingerprint: Fingerprint::UNCHECKED,
                            outcome: Outcome::bytes(version),
                            failed: false,
                            left: 3600 * SECOND,
                        };
                        near.put(&id, &kept, ticket).await.unwrap();
                    }
                }
            }
            found
        });
    }
    for version in 1..=ROUNDS {
        truth.store(version, Ordering::SeqCst);
        near.forget(&id).await.unwrap();
        forgotten.store(version, Ordering::SeqCst);
        if version % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let found: u64 = tasks.join_all().await.into_iter().sum();
    assert!(found > 0, "the test saw nothing");
}
