//! Waiting for replicas: whoever waits holds up nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use justonce_core::store::{Records, SharedStore};
use justonce_core::{Answer, Effect, Operation};
use justonce_redis::RedisStore;
use justonce_testbed::{RedisSentinel, RedisServer};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::world::{assert_passing, begin_step, complete, plain, until_ok};

/// How many callers are first with an operation, over and over.
const FIRST: usize = 32;
/// How many callers repeat what is done.
const REPEAT: usize = 8;
/// How long replays are counted, each time.
const COUNTED: Duration = Duration::from_secs(2);
/// How long a write waits for its replica.
const WITHIN: Duration = Duration::from_millis(500);
/// While the replica is away, replays may come down to this part: others use the same machine.
const LEAST_PART: usize = 3;

/// Begins operations that nobody has begun, over and over.
struct Pending {
    over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<usize>>,
}

impl Pending {
    fn start(store: &SharedStore, name: &'static str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let callers = (0..FIRST)
            .map(|caller| {
                let (store, over) = (Arc::clone(store), Arc::clone(&over));
                tokio::spawn(async move {
                    let mut unconfirmed = 0;
                    for number in 0.. {
                        if over.load(Ordering::Acquire) {
                            break;
                        }
                        let step = begin_step(&plain(&format!("{name}-{caller}-{number}")));
                        if let Err(error) = store.apply(&step).await {
                            assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{error}");
                            assert_passing(&error);
                            unconfirmed += 1;
                        }
                    }
                    unconfirmed
                })
            })
            .collect();
        Self { over, callers }
    }

    /// Ends it, and says how many were not confirmed.
    async fn stop(self) -> usize {
        self.over.store(true, Ordering::Release);
        let mut unconfirmed = 0;
        for caller in self.callers {
            unconfirmed += caller.await.unwrap();
        }
        unconfirmed
    }
}

/// How many replays there are in the time that is counted.
async fn replays(store: &SharedStore, done: &[Operation]) -> usize {
    let until = Instant::now() + COUNTED;
    let callers: Vec<_> = (0..REPEAT)
        .map(|_| {
            let (store, done) = (Arc::clone(store), done.to_vec());
            tokio::spawn(async move {
                let mut count = 0;
                for operation in done.iter().cycle() {
                    if Instant::now() >= until {
                        break;
                    }
                    let answer = store.apply(&begin_step(operation)).await.unwrap();
                    assert!(answer.completed().is_some(), "{answer:?}");
                    assert!(store.get(&operation.id()).await.unwrap().is_some());
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut all = 0;
    for caller in callers {
        all += caller.await.unwrap();
    }
    all
}

async fn replays_go_on(url: String, replica: &RedisServer) {
    let store = RedisStore::builder(url).wait_replicas(1, WITHIN).open().await.unwrap();
    let mut done = Vec::new();
    for number in 0..64 {
        let operation = plain(&format!("done-{number}"));
        let step = begin_step(&operation);
        // A replica that has just come up confirms after a moment.
        let Answer::Claimed(claimed) = until_ok(|| store.apply(&step)).await else {
            panic!("the key is free");
        };
        until_ok(|| complete(&store, &operation, claimed.fence, "done")).await;
        done.push(operation);
    }
    let store: SharedStore = Arc::new(store);
    let undisturbed = replays(&store, &done).await;
    replica.pause().unwrap();
    let pending = Pending::start(&store, "pending");
    let meanwhile = replays(&store, &done).await;
    let unconfirmed = pending.stop().await;
    replica.resume().unwrap();
    println!("{undisturbed} replays, {meanwhile} beside {unconfirmed} unconfirmed");
    assert!(unconfirmed >= FIRST, "only {unconfirmed} first-times waited");
    assert!(meanwhile >= undisturbed / LEAST_PART, "{meanwhile} of {undisturbed} replays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_server_replays_never_stand_behind_a_wait() {
    let primary = RedisServer::start().unwrap();
    let replica = RedisServer::start().unwrap();
    let port = primary.port().to_string();
    replica.cli(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    while replica.info("replication", "master_link_status").unwrap() != "up" {
        sleep(Duration::from_millis(20)).await; // tidy: allow-sleep: a server gives no signal
    }
    replays_go_on(primary.url(), &replica).await;
    // The writes that WAIT covers leave nothing behind.
    assert_eq!(primary.cli(&["KEYS", "*}w"]).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels_replays_never_stand_behind_a_wait() {
    let group = RedisSentinel::start(1, 1).unwrap();
    let primary = group.primary().unwrap();
    let replica = group.servers().iter().find(|server| server.port() != primary.port()).unwrap();
    replays_go_on(group.url(), replica).await;
}
