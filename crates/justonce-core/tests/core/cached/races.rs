//! What a cache must never do: bring back what is over. Each test makes a put come late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use justonce_core::store::{Cached, CachedOutcome, Lookup, NearCache, OutcomeCache, Records};
use justonce_core::{
    Action, AfterRetention, Answer, Claimed, Existing, Fingerprint, OnLapsed, Operation, Outcome,
    Owner, RecordId, Step, Token,
};

use crate::common::erasable::Erasable;
use crate::common::handlers::done;
use crate::common::world::{SECOND, operation, pass, policy};

/// Two processes with a near cache each on one store; time is virtual.
struct Scene {
    store: Erasable,
    here: Arc<Cached<Erasable, NearCache>>,
    elsewhere: Cached<Erasable, NearCache>,
    operation: Operation,
}

impl Scene {
    fn new(retention: Duration) -> Self {
        Self::on(Erasable::new(), retention, NearCache::default())
    }

    fn on(store: Erasable, retention: Duration, near: NearCache) -> Self {
        let after = AfterRetention::Refuse(100 * SECOND);
        let policy = policy(OnLapsed::Rerun).retention(retention).after_retention(after);
        Self {
            here: Arc::new(Cached::new(store.clone(), near)),
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

/// The owner is away until its lease has lapsed, an operator says elsewhere what became of the
/// operation, and the owner comes back and says the same: its retention began before.
#[tokio::test(start_paused = true)]
async fn a_completion_after_the_lease_is_not_kept() {
    let near = NearCache::builder().age(3600 * SECOND).build();
    let scene = Scene::on(Erasable::new(), 60 * SECOND, near);
    let claimed = scene.claimed().await;
    pass(31 * SECOND).await;
    let done_elsewhere = scene.elsewhere.apply(&scene.complete(&claimed)).await.unwrap();
    assert_eq!(done_elsewhere, Answer::Applied);
    pass(50 * SECOND).await;
    assert_eq!(scene.here.apply(&scene.complete(&claimed)).await.unwrap(), Answer::Applied);
    pass(20 * SECOND).await;
    let answer = scene.asked().await;
    assert!(matches!(answer, Answer::Existing(Existing::Expired(_))), "{answer:?}");
}

/// Renewals keep the claim alive, and then the outcome is kept.
#[tokio::test(start_paused = true)]
async fn a_completion_after_a_renewal_is_kept() {
    let near = NearCache::builder().age(3600 * SECOND).build();
    let scene = Scene::on(Erasable::new(), 60 * SECOND, near);
    let claimed = scene.claimed().await;
    pass(20 * SECOND).await;
    let renew = Step::new(scene.id(), Action::Renew(claimed.fence));
    assert!(matches!(scene.here.apply(&renew).await.unwrap(), Answer::Renewed(_)));
    pass(20 * SECOND).await;
    assert_eq!(scene.here.apply(&scene.complete(&claimed)).await.unwrap(), Answer::Applied);
    assert_eq!(scene.here.cache().stats().outcomes, 1);
    pass(59 * SECOND).await;
    assert!(scene.asked().await.completed().is_some());
    pass(SECOND).await;
    assert!(scene.asked().await.completed().is_none(), "the retention is over");
}

/// Two clocks that count whole milliseconds, and tick at different moments.
#[tokio::test(start_paused = true)]
async fn clocks_that_tick_apart_do_not_make_the_retention_longer() {
    let store = Erasable::new();
    tokio::time::advance(Duration::from_micros(900)).await;
    let scene = Scene::on(store, 2 * SECOND, NearCache::default());
    scene.completed_elsewhere().await;
    assert!(scene.asked().await.completed().is_some());
    tokio::time::advance(2 * SECOND - Duration::from_micros(400)).await;
    let answer = scene.asked().await;
    assert!(matches!(answer, Answer::Existing(Existing::Expired(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_left_counts_from_before_the_question() {
    let scene = Scene::new(100 * SECOND);
    scene.completed_elsewhere().await;
    let late = scene.slowly(scene.begin(), 3 * SECOND).await;
    late.await.unwrap();
    let Answer::Existing(Existing::Completed(replay)) = scene.asked().await else {
        panic!("it is completed")
    };
    assert_eq!(scene.here.cache().stats().hits, 1);
    let short = Duration::from_millis(10);
    assert!((97 * SECOND - short..=97 * SECOND).contains(&replay.left), "{:?}", replay.left);
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

/// What the threads of [`under_contention_nothing_forgotten_comes_back`] share.
#[derive(Default)]
struct Contention {
    near: NearCache,
    /// What the store has.
    truth: AtomicU64,
    /// What the cache was told to forget, up to here.
    forgotten: AtomicU64,
    found: AtomicU64,
    came_back: AtomicU64,
    over: AtomicBool,
}

impl Contention {
    const ID: RecordId = RecordId::from_bytes([7; 32]);

    /// Looks, and puts what the store has if there is nothing.
    async fn look(&self) {
        let floor = self.forgotten.load(Ordering::SeqCst);
        match self.near.get(&Self::ID, &Fingerprint::UNCHECKED).await.unwrap() {
            Lookup::Found(kept) => {
                let version = kept.outcome.body().unwrap().try_into().map(u64::from_le_bytes);
                let count = if version.unwrap() >= floor { &self.found } else { &self.came_back };
                count.fetch_add(1, Ordering::SeqCst);
            }
            Lookup::Nothing(permit) | Lookup::Other(permit) => {
                let version = self.truth.load(Ordering::SeqCst).to_le_bytes().to_vec();
                let kept = CachedOutcome {
                    fingerprint: Fingerprint::UNCHECKED,
                    outcome: Outcome::bytes(version),
                    failed: false,
                    left: 3600 * SECOND,
                };
                self.near.put(&Self::ID, &kept, permit).await.unwrap();
            }
        }
    }

    async fn forget(&self, version: u64) {
        self.truth.store(version, Ordering::SeqCst);
        self.near.forget(&Self::ID).await.unwrap();
        self.forgotten.store(version, Ordering::SeqCst);
    }
}

/// Threads that forget, put and look as fast as they can: whoever looks after a forget returned
/// never sees what was put with a permit from before.
#[test]
fn under_contention_nothing_forgotten_comes_back() {
    const FORGETS: u64 = 20_000;
    const FINDS: u64 = 20_000;
    let shared = Contention::default();
    let came_back = || shared.came_back.load(Ordering::SeqCst);
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                runtime().block_on(async {
                    while !shared.over.load(Ordering::SeqCst) {
                        shared.look().await;
                    }
                });
            });
        }
        let (mut version, here) = (0, runtime());
        let found = || shared.found.load(Ordering::SeqCst);
        while (version < FORGETS || found() < FINDS) && came_back() == 0 {
            version += 1;
            here.block_on(shared.forget(version));
        }
        shared.over.store(true, Ordering::SeqCst);
    });
    assert_eq!(came_back(), 0, "what was forgotten came back");
}
