//! Sentinels replace a primary while operations run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{Answer, Effect, Fence, Outcome, StoreErrorKind};
use justonce_redis::RedisStore;
use justonce_testbed::RedisSentinel;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::world::{
    LOST_AFTER, assert_passing, begin, begin_step, claim, complete, plain, replayed, run, until_ok,
};

/// How many operations are under way when the primary dies.
const CALLERS: usize = 8;
/// How many operations are acknowledged before the primary dies.
const UNDER_WAY: u32 = 50;

/// Runs one operation to its end, through all errors that pass. Gives all fences it got.
async fn through(store: &RedisStore, key: &str) -> Vec<Fence> {
    let operation = plain(key);
    let mut fences = Vec::new();
    let step = begin_step(&operation);
    loop {
        let answer = until_ok(|| store.apply(&step)).await;
        let fence = match answer {
            Answer::Claimed(claimed) => claimed.fence,
            other => {
                assert!(other.completed().is_some(), "{other:?}");
                return fences;
            }
        };
        if fences.last() != Some(&fence) {
            fences.push(fence);
        }
        match until_ok(|| complete(store, &operation, fence, key)).await {
            Answer::Applied => return fences,
            // The claim went with the primary: begin again.
            other => assert!(matches!(other, Answer::Lost(_)), "{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_wait_no_acknowledged_outcome_is_lost_and_no_fence_repeats() {
    let group = RedisSentinel::start(1, 1).unwrap();
    let store = RedisStore::builder(group.url())
        .wait_replicas(1, Duration::from_millis(200))
        .reply_timeout(Duration::from_millis(500))
        .open()
        .await
        .unwrap();
    let store = Arc::new(store);
    let over = Arc::new(AtomicBool::new(false));
    let under_way = Arc::new(Semaphore::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, over) = (Arc::clone(&store), Arc::clone(&over));
            let under_way = Arc::clone(&under_way);
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    let key = format!("caller-{caller}-{number}");
                    let operation = plain(&key);
                    // One try each: what is not acknowledged is not promised.
                    let Ok(Answer::Claimed(claimed)) = begin(&store, &operation).await else {
                        continue;
                    };
                    let done = complete(&store, &operation, claimed.fence, &key).await;
                    if matches!(done, Ok(Answer::Applied)) {
                        acknowledged.push((key, claimed.fence));
                        under_way.add_permits(1);
                    }
                }
                acknowledged
            })
        })
        .collect();
    let first = group.primary().unwrap();
    timeout(LOST_AFTER, under_way.acquire_many(UNDER_WAY)).await.unwrap().unwrap().forget();
    first.kill();
    let second = tokio::task::block_in_place(|| group.primary_other_than(first)).unwrap();
    // The only other server has no replica to confirm its writes until the first is back as one.
    first.restart().unwrap();
    over.store(true, Ordering::Release);
    let mut fences = Vec::new();
    for caller in callers {
        for (key, fence) in caller.await.unwrap() {
            let operation = plain(&key);
            let answer = until_ok(|| begin(&store, &operation)).await;
            assert_eq!(answer.completed(), Some(&Outcome::bytes(key.clone())), "{key} is lost");
            fences.push((operation.id(), fence));
        }
    }
    assert!(fences.len() > CALLERS, "only {} operations were acknowledged", fences.len());
    assert_ne!(first.port(), second.port());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_goes_on_with_the_new_primary() {
    let group = RedisSentinel::start(1, 3).unwrap();
    let store = RedisStore::builder(group.url()).open().await.unwrap();
    let done = plain("done");
    let old = run(&store, &done, "done").await;
    let first = group.primary().unwrap();
    // Without WAIT the replica follows when it can; here it has.
    assert_eq!(first.cli(&["WAIT", "1", "5000"]).unwrap(), "1");
    let released = plain("released");
    let newest = claim(&store, &released).await.fence;
    first.kill();
    let error = begin(&store, &plain("away")).await.unwrap_err();
    assert_passing(&error);
    tokio::task::block_in_place(|| group.primary_other_than(first)).unwrap();
    until_ok(|| store.ready()).await;
    assert_eq!(replayed(&store, &done).await, Some(Outcome::bytes("done")));
    let fences = through(&store, "after").await;
    assert!(fences.iter().all(|fence| *fence > newest && *fence > old), "{fences:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_is_left_when_the_sentinels_have_left_it() {
    let group = RedisSentinel::start(1, 1).unwrap();
    let store = RedisStore::builder(group.url())
        .reply_timeout(Duration::from_millis(300))
        .open()
        .await
        .unwrap();
    let operation = plain("stuck");
    let fence = claim(&store, &operation).await.fence;
    let first = group.primary().unwrap();
    first.pause().unwrap();
    tokio::task::block_in_place(|| group.primary_other_than(first)).unwrap();
    let fences = through(&store, "after").await;
    assert!(fences.iter().all(|new| *new > fence));
    // When the old primary goes on it is told that it is a replica; nobody writes to it.
    first.resume().unwrap();
    run(&store, &plain("later"), "done").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_no_replica_confirms_may_have_been_applied() {
    let group = RedisSentinel::start(1, 1).unwrap();
    let store = RedisStore::builder(group.url())
        .wait_replicas(1, Duration::from_millis(100))
        .open()
        .await
        .unwrap();
    let step = begin_step(&plain("unconfirmed"));
    let primary = group.primary().unwrap();
    let replica = group.servers().iter().find(|server| server.port() != primary.port()).unwrap();
    replica.pause().unwrap();
    let error = store.apply(&step).await.unwrap_err();
    assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{error}");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    // The same call again is as unsure as the first: it is not enough that the primary has it.
    assert_eq!(store.apply(&step).await.unwrap_err().effect(), Effect::MayHaveBeenApplied);
    replica.resume().unwrap();
    assert!(matches!(until_ok(|| store.apply(&step)).await, Answer::Claimed(_)));
}
