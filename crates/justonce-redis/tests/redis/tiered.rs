//! Redis in front of PostgreSQL: PostgreSQL decides, Redis answers duplicates, and losing Redis
//! loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use justonce_core::store::{CACHE_WAIT, CacheEvent, Cached};
use justonce_core::{Engine, Key, OnLapsed, Operation, Outcome, Policy, Ran, Scope};
use justonce_postgres::PostgresStore;
use justonce_redis::{OUTCOME_REPLY_TIMEOUT, RedisOutcomes};
use justonce_testbed::{PostgresOptions, PostgresServer, RedisServer};
use justonce_testkit::conformance::{OnManualClock, Survival};
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);

justonce_testkit::conformance!(tiered, || {
    let postgres = PostgresServer::start(PostgresOptions::default()).unwrap();
    let servers = Arc::new((postgres, RedisServer::start().unwrap()));
    OnManualClock::open(Survival::Durable, move |clock| {
        let servers = Arc::clone(&servers);
        async move {
            let (postgres, redis) = &*servers;
            let store = PostgresStore::builder(postgres.url()).clock(clock.clone()).open().await?;
            let outcomes = RedisOutcomes::builder(redis.url()).reply_timeout(9 * SECOND);
            let outcomes = outcomes.clock(clock.clone()).build()?;
            Ok(Cached::new(store, outcomes).wait(10 * SECOND).clock(clock))
        }
    })
});

/// What an engine's cache did.
#[derive(Default)]
struct Counts {
    hits: AtomicUsize,
    failures: AtomicUsize,
}

/// Both servers.
struct Servers {
    postgres: PostgresServer,
    redis: RedisServer,
}

impl Servers {
    fn start() -> Self {
        let postgres = PostgresServer::start(PostgresOptions::default()).unwrap();
        Self { postgres, redis: RedisServer::start().unwrap() }
    }

    /// An engine as one gateway has it.
    async fn gateway(&self) -> (Engine, Arc<Counts>) {
        self.waiting(OUTCOME_REPLY_TIMEOUT, CACHE_WAIT).await
    }

    /// One that waits for Redis however busy the machine is.
    async fn patient(&self) -> (Engine, Arc<Counts>) {
        self.waiting(9 * SECOND, 10 * SECOND).await
    }

    async fn waiting(&self, reply: Duration, wait: Duration) -> (Engine, Arc<Counts>) {
        let store = PostgresStore::open(self.postgres.url()).await.unwrap();
        let outcomes = RedisOutcomes::builder(self.redis.url()).reply_timeout(reply);
        let outcomes = outcomes.build().unwrap();
        let counts = Arc::new(Counts::default());
        let seen = Arc::clone(&counts);
        let tiered =
            Cached::new(store, outcomes).wait(wait).observer(move |event: CacheEvent<'_>| {
                match event {
                    CacheEvent::Hit => seen.hits.fetch_add(1, Ordering::SeqCst),
                    CacheEvent::Failed(_) => seen.failures.fetch_add(1, Ordering::SeqCst),
                    _ => 0,
                };
            });
        (Engine::new(tiered), counts)
    }
}

fn order(name: impl std::fmt::Display) -> Operation {
    let key = Key::client(format!("order-{name}")).unwrap();
    let policy = Policy::builder().on_lapsed(OnLapsed::Rerun).build().unwrap();
    Operation::without_fingerprint(Scope::global(), key).with_policy(policy)
}

fn receipt(name: impl std::fmt::Display) -> Outcome {
    Outcome::bytes(format!("receipt of {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_answers_a_duplicate_at_another_gateway_without_postgres() {
    let servers = Servers::start();
    let ((here, _), (there, counts)) = (servers.patient().await, servers.patient().await);
    let first = here.run(&order(17), async |_| Ok(receipt(17))).await.unwrap();
    assert_eq!(first, Ran::Executed(receipt(17)));
    servers.postgres.pause().unwrap();
    let operation = order(17);
    let duplicate = there.run(&operation, async |_| panic!("it runs once"));
    let answered = tokio::time::timeout(30 * SECOND, duplicate).await;
    servers.postgres.resume().unwrap();
    assert_eq!(answered.unwrap().unwrap(), Ran::Replayed(receipt(17)));
    assert_eq!(counts.hits.load(Ordering::SeqCst), 1);
}

/// Gateways that get each operation several times, at once.
async fn load(gateways: &[Engine], round: usize, executed: &Arc<AtomicUsize>) {
    const OPERATIONS: usize = 20;
    const COPIES: usize = 4;
    executed.store(0, Ordering::SeqCst);
    let mut requests = JoinSet::new();
    for number in 0..OPERATIONS * COPIES {
        let name = format!("{round}-{}", number % OPERATIONS);
        let engine = gateways.iter().cycle().nth(number).unwrap().clone();
        let executed = Arc::clone(executed);
        requests.spawn(async move {
            let operation = order(&name);
            let ran = engine.run(&operation, async |_| {
                executed.fetch_add(1, Ordering::SeqCst);
                Ok(receipt(&name))
            });
            match ran.await.unwrap() {
                Ran::Executed(outcome) | Ran::Replayed(outcome) => {
                    assert_eq!(outcome, receipt(&name));
                }
                other => panic!("{other:?}"),
            }
        });
    }
    assert_eq!(requests.join_all().await.len(), OPERATIONS * COPIES);
    assert_eq!(executed.load(Ordering::SeqCst), OPERATIONS, "each runs once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_redis_loses_nothing() {
    let servers = Servers::start();
    let ((here, counts), (there, _)) = (servers.gateway().await, servers.gateway().await);
    let gateways = [here.clone(), there];
    let executed = Arc::default();
    load(&gateways, 0, &executed).await;
    servers.redis.cli(&["FLUSHALL"]).unwrap();
    load(&gateways, 1, &executed).await;
    servers.redis.kill();
    load(&gateways, 2, &executed).await;
    assert!(counts.failures.load(Ordering::SeqCst) > 0, "it was noticed");
    servers.redis.restart().unwrap();
    load(&gateways, 3, &executed).await;
    servers.redis.pause().unwrap();
    load(&gateways, 4, &executed).await;
    servers.redis.resume().unwrap();
    load(&gateways, 5, &executed).await;
    for round in 0..=5 {
        let name = format!("{round}-0");
        let replayed = here.run(&order(&name), async |_| panic!("it runs once")).await.unwrap();
        assert_eq!(replayed, Ran::Replayed(receipt(&name)));
    }
}

/// What Redis costs when it hangs is bounded: of many requests one after the other, only one in a
/// second waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_hangs_is_left_alone() {
    const REQUESTS: usize = 200;
    let servers = Servers::start();
    let (engine, counts) = servers.gateway().await;
    engine.run(&order(17), async |_| Ok(receipt(17))).await.unwrap();
    servers.redis.pause().unwrap();
    let start = tokio::time::Instant::now();
    for _ in 0..REQUESTS {
        let again = engine.run(&order(17), async |_| panic!("it runs once")).await.unwrap();
        assert_eq!(again, Ran::Replayed(receipt(17)));
    }
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap() + 2;
    let failures = counts.failures.load(Ordering::SeqCst);
    assert!((1..=seconds).contains(&failures), "{failures} waits in {:?}", start.elapsed());
}
