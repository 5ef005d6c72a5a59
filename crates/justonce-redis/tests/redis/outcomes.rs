//! The cache of outcomes in Redis: what it keeps, what it refuses, what it costs.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::memory::MemoryStore;
use justonce_core::store::{
    CACHE_PAUSE, Cached, CachedOutcome, Lookup, OutcomeCache, PutPermit, Records,
};
use justonce_core::{
    Action, Answer, Clock, Fingerprint, Key, ManualClock, Operation, Outcome, Owner, RecordId,
    Scope, Step, Timestamp, Token,
};
use justonce_redis::{MAX_OUTCOME_BYTES, RedisOutcomes};
use justonce_testbed::RedisServer;
use justonce_testkit::conformance::{OnManualClock, Survival};

const SECOND: Duration = Duration::from_secs(1);
const ID: RecordId = RecordId::from_bytes([0x3f; 32]);

// The whole suite on a store in memory with this cache in front, to the millisecond.
justonce_testkit::conformance!(shared, || {
    let server = Arc::new(RedisServer::start().unwrap());
    OnManualClock::open(Survival::Nothing, move |clock| {
        let server = Arc::clone(&server);
        async move {
            // What a restart of the store loses, no cache may bring back.
            server.cli(&["FLUSHALL"]).unwrap();
            let outcomes = patient(&server).clock(clock.clone()).build()?;
            let store = MemoryStore::new(clock.clone());
            Ok(Cached::new(store, outcomes).wait(10 * SECOND).clock(clock))
        }
    })
});

/// A cache that does not mind a busy machine.
fn patient(server: &RedisServer) -> justonce_redis::RedisOutcomesBuilder {
    RedisOutcomes::builder(server.url()).reply_timeout(9 * SECOND)
}

fn asked() -> Fingerprint {
    Fingerprint::of(&Scope::global(), b"5 to bob")
}

fn kept(text: &str) -> CachedOutcome {
    let outcome = Outcome::bytes(text.to_owned());
    CachedOutcome { fingerprint: asked(), outcome, failed: false, left: 100 * SECOND }
}

async fn permit(cache: &RedisOutcomes) -> PutPermit {
    match cache.get(&ID, &asked()).await.unwrap() {
        Lookup::Nothing(permit) | Lookup::Other(permit) => permit,
        Lookup::Found(kept) => panic!("there is {kept:?}"),
    }
}

async fn found(cache: &RedisOutcomes) -> Option<CachedOutcome> {
    match cache.get(&ID, &asked()).await.unwrap() {
        Lookup::Found(kept) => Some(kept),
        _ => None,
    }
}

/// A cache whose clock the test moves.
fn on_clock(server: &RedisServer) -> (RedisOutcomes, ManualClock) {
    let clock = ManualClock::starting_at(Timestamp::from_millis(1_750_000_000_000));
    (patient(server).age(60 * SECOND).clock(clock.clone()).build().unwrap(), clock)
}

#[tokio::test]
async fn what_is_put_is_found_until_its_time_is_over() {
    let server = RedisServer::start().unwrap();
    let (cache, clock) = on_clock(&server);
    let first = permit(&cache).await;
    cache.put(&ID, &kept("a"), first).await.unwrap();
    clock.advance(59 * SECOND);
    let seen = found(&cache).await.unwrap();
    assert_eq!(seen, CachedOutcome { left: 41 * SECOND, ..kept("a") });
    let other = Fingerprint::of(&Scope::global(), b"6 to bob");
    assert!(matches!(cache.get(&ID, &other).await.unwrap(), Lookup::Other(_)));
    clock.advance(SECOND);
    assert_eq!(found(&cache).await, None, "it is as old as it may be");
    // An outcome of which less is left than the age.
    let short = CachedOutcome { left: 10 * SECOND, failed: true, ..kept("b") };
    cache.put(&ID, &short, permit(&cache).await).await.unwrap();
    clock.advance(10 * SECOND - Duration::from_millis(1));
    assert_eq!(
        found(&cache).await.unwrap(),
        CachedOutcome { left: Duration::from_millis(1), ..short }
    );
    clock.advance(Duration::from_millis(1));
    assert_eq!(found(&cache).await, None, "its retention is over");
}

#[tokio::test]
async fn what_comes_late_is_refused() {
    let server = RedisServer::start().unwrap();
    let (cache, clock) = on_clock(&server);
    let early = permit(&cache).await;
    clock.advance(SECOND);
    cache.forget(&ID).await.unwrap();
    cache.put(&ID, &kept("erased"), early).await.unwrap();
    assert_eq!(found(&cache).await, None, "it was forgotten since");
    clock.advance(SECOND);
    cache.put(&ID, &kept("new"), permit(&cache).await).await.unwrap();
    cache.put(&ID, &kept("erased"), early).await.unwrap();
    assert_eq!(found(&cache).await.unwrap().outcome, kept("new").outcome);
    cache.forget(&ID).await.unwrap();
    let slow = PutPermit { at: clock.now(), turn: clock.now().as_millis() + 1 };
    clock.advance(60 * SECOND);
    cache.put(&ID, &kept("old"), slow).await.unwrap();
    assert_eq!(found(&cache).await, None, "it was on its way for a minute");
}

#[tokio::test]
async fn a_put_that_a_paused_server_reads_late_is_counted_from_its_question() {
    let server = RedisServer::start().unwrap();
    let cache = patient(&server).age(Duration::from_millis(300)).build().unwrap();
    let early = permit(&cache).await;
    server.pause().unwrap();
    let put = kept("a");
    let put = cache.put(&ID, &put, early);
    let mut put = std::pin::pin!(put);
    // It is under way, and nobody waits for it any more when the server goes on.
    let cut = tokio::time::timeout(Duration::from_millis(400), put.as_mut()).await;
    assert!(cut.is_err(), "the server stands still");
    server.resume().unwrap();
    put.await.unwrap();
    assert_eq!(found(&cache).await, None, "it is older than it may be");
}

#[tokio::test]
async fn everything_has_an_end_in_redis_too() {
    let server = RedisServer::start().unwrap();
    let cache = patient(&server).age(60 * SECOND).prefix("mine").build().unwrap();
    cache.put(&ID, &kept("a"), permit(&cache).await).await.unwrap();
    let keys = server.cli(&["KEYS", "*"]).unwrap();
    assert_eq!(keys.lines().count(), 1, "{keys}");
    assert!(keys.contains("{mine:3f}o"), "{keys}");
    let life = |server: &RedisServer| {
        let script = "return redis.call('PTTL', redis.call('KEYS', '*')[1])";
        server.cli(&["EVAL", script, "0"]).unwrap().parse::<u64>().unwrap()
    };
    assert!((1..=60_000).contains(&life(&server)));
    cache.forget(&ID).await.unwrap();
    let keys = server.cli(&["KEYS", "*"]).unwrap();
    assert!(keys.lines().count() == 1 && keys.contains("{mine:3f}g"), "{keys}");
    assert!((1..=60_000).contains(&life(&server)));
}

#[tokio::test]
async fn each_call_is_one_command() {
    let server = RedisServer::start().unwrap();
    let cache = patient(&server).build().unwrap();
    // The first call of each script brings its text.
    for _ in 0..2 {
        cache.put(&ID, &kept("a"), permit(&cache).await).await.unwrap();
        cache.forget(&ID).await.unwrap();
    }
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    cache.put(&ID, &kept("a"), permit(&cache).await).await.unwrap();
    cache.forget(&ID).await.unwrap();
    let stats = server.info("commandstats", "cmdstat_evalsha").unwrap();
    assert!(stats.starts_with("calls=3,"), "{stats}");
    let commands = server.cli(&["INFO", "commandstats"]).unwrap();
    assert!(!commands.contains("cmdstat_eval:"), "{commands}");
}

#[tokio::test]
async fn what_is_damaged_or_too_large_is_nothing() {
    let server = RedisServer::start().unwrap();
    let cache = patient(&server).build().unwrap();
    let large: Vec<u8> = (0..MAX_OUTCOME_BYTES as u64 / 8 + 1)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    let large = CachedOutcome { outcome: Outcome::bytes(large), ..kept("") };
    cache.put(&ID, &large, permit(&cache).await).await.unwrap();
    assert_eq!(found(&cache).await, None, "too large");
    cache.put(&ID, &kept("a"), permit(&cache).await).await.unwrap();
    let damage = "local key = redis.call('KEYS', '*')[1]; \
                  return redis.call('SETRANGE', key, redis.call('STRLEN', key) - 1, '!')";
    server.cli(&["EVAL", damage, "0"]).unwrap();
    assert_eq!(found(&cache).await, None, "damaged");
    cache.put(&ID, &kept("a"), permit(&cache).await).await.unwrap();
    assert!(found(&cache).await.is_some(), "put anew");
}

/// One operation, begun and completed through a store with this cache in front.
struct Scene {
    server: RedisServer,
    store: Cached<MemoryStore, RedisOutcomes>,
    operation: Operation,
}

impl Scene {
    async fn settled() -> Self {
        let server = RedisServer::start().unwrap();
        let outcomes = RedisOutcomes::builder(server.url()).build().unwrap();
        let store = Cached::new(MemoryStore::new(ManualClock::default()), outcomes);
        let operation =
            Operation::without_fingerprint(Scope::global(), Key::client("order-17").unwrap());
        let scene = Self { server, store, operation };
        let Answer::Claimed(claimed) = scene.asked().await else { panic!("it must be claimed") };
        let complete = Action::Complete(claimed.fence, Outcome::bytes("done"));
        let complete = Step::new(scene.operation.id(), complete);
        assert_eq!(scene.store.apply(&complete).await.unwrap(), Answer::Applied);
        scene
    }

    async fn asked(&self) -> Answer {
        let begin = Step::begin(&self.operation, Owner::new("test"), Token(7));
        self.store.apply(&begin).await.unwrap()
    }

    async fn replays(&self) -> bool {
        self.asked().await.completed() == Some(&Outcome::bytes("done"))
    }

    async fn has_it(&self) -> bool {
        let fingerprint = self.operation.fingerprint();
        let looked = self.store.cache().get(&self.operation.id(), &fingerprint).await;
        matches!(looked, Ok(Lookup::Found(_)))
    }

    /// Asks until the cache has the outcome: it is left alone for a while after it failed.
    async fn comes_back(&self) {
        let start = tokio::time::Instant::now();
        while !self.has_it().await {
            assert!(self.replays().await);
            assert!(start.elapsed() < 20 * CACHE_PAUSE, "the cache is not used again");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_server_that_is_killed_flushed_or_paused_loses_nothing() {
    let scene = Scene::settled().await;
    scene.comes_back().await;
    scene.server.cli(&["FLUSHALL"]).unwrap();
    assert!(scene.replays().await, "flushed");
    scene.comes_back().await;
    scene.server.cli(&["SCRIPT", "FLUSH"]).unwrap();
    assert!(scene.replays().await, "the scripts are gone");
    scene.server.kill();
    for _ in 0..100 {
        assert!(scene.replays().await, "killed");
    }
    scene.server.restart().unwrap();
    scene.comes_back().await;
    scene.server.pause().unwrap();
    for _ in 0..100 {
        assert!(scene.replays().await, "paused");
    }
    scene.server.resume().unwrap();
    scene.comes_back().await;
}
