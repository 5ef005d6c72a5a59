//! A server that may evict records is refused at any time, not only when the store is opened.

use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{OnLapsed, Operation, Outcome, StoreError, StoreErrorKind, StoreResult};
use justonce_redis::RedisStore;
use justonce_testbed::{RedisCluster, RedisSentinel, RedisServer};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{
    LOST_AFTER, begin, complete, is_not_applied, operation, replayed, run, until_ok,
};

/// The promised bound is the pause between two checks and one reply: far below this, which only
/// allows for a machine that is busy.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);
/// How long between two begins of one caller.
const BEGIN_AGAIN_AFTER: Duration = Duration::from_millis(20);

fn held(key: &str) -> Operation {
    operation(key, Duration::from_secs(30), OnLapsed::Hold)
}

fn set_policy(server: &RedisServer, policy: &str) {
    server.cli(&["CONFIG", "SET", "maxmemory-policy", policy]).unwrap();
}

/// Whether an error refuses a step because of the eviction policy, and says what to set.
fn is_refusal(error: &StoreError) -> bool {
    let said = error.to_string();
    is_not_applied(error, StoreErrorKind::Unavailable)
        && said.contains("allkeys-lru")
        && said.contains("maxmemory-policy noeviction")
}

/// Begins new operations until one is refused.
async fn refused(store: &RedisStore, name: &str) -> Duration {
    let start = Instant::now();
    for number in 0.. {
        match begin(store, &held(&format!("{name}-{number}"))).await {
            Ok(_) => assert!(start.elapsed() < REFUSED_WITHIN, "steps are still taken"),
            Err(error) if is_refusal(&error) => break,
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
        sleep(BEGIN_AGAIN_AFTER).await; // tidy: allow-sleep: the server tells nobody
    }
    start.elapsed()
}

fn assert_refused<T: std::fmt::Debug>(result: StoreResult<T>) {
    let error = result.expect_err("the server may evict records");
    assert!(is_refusal(&error), "{error}");
}

/// A completed operation stays completed, whatever becomes of the policy of `changed`.
async fn fails_closed_and_recovers(store: &RedisStore, changed: &RedisServer, name: &str) {
    let (done, running) = (held(&format!("{name}-done")), held(&format!("{name}-running")));
    run(store, &done, "done").await;
    let fence = crate::world::claim(store, &running).await.fence;
    set_policy(changed, "allkeys-lru");
    refused(store, name).await;
    assert_refused(store.ready().await);
    assert_refused(begin(store, &done).await);
    assert_refused(store.get(&done.id()).await);
    assert_refused(complete(store, &running, fence, "late").await);
    set_policy(changed, "noeviction");
    timeout(LOST_AFTER, until_ok(|| begin(store, &done))).await.unwrap();
    store.ready().await.unwrap();
    assert_eq!(replayed(store, &done).await, Some(Outcome::bytes("done")));
    complete(store, &running, fence, "late").await.unwrap();
}

#[tokio::test]
async fn a_policy_changed_at_run_time_refuses_all_steps_until_it_is_corrected() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).open().await.unwrap();
    // Nobody asks whether it is ready: steps alone find out.
    set_policy(&server, "allkeys-lru");
    refused(&store, "unasked").await;
    set_policy(&server, "noeviction");
    let corrected = held("corrected");
    until_ok(|| begin(&store, &corrected)).await;
    fails_closed_and_recovers(&store, &server, "single").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels_the_primary_and_its_replicas_count() {
    let group = RedisSentinel::start(1, 1).unwrap();
    let store = RedisStore::builder(group.url()).open().await.unwrap();
    for (number, server) in group.servers().iter().enumerate() {
        fails_closed_and_recovers(&store, server, &format!("server-{number}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_every_primary_and_every_replica_counts() {
    let cluster = RedisCluster::start(3, 1).unwrap();
    let store = RedisStore::builder(cluster.url()).open().await.unwrap();
    for (number, node) in cluster.nodes().iter().enumerate() {
        fails_closed_and_recovers(&store, node, &format!("node-{number}")).await;
    }
}

/// Nobody asks in the background: what a new connection finds counts.
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_connection_that_is_made_anew_is_checked_first() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).check_every(NEVER).open().await.unwrap();
    let done = held("done");
    run(&store, &done, "done").await;
    // Whoever asks whether it is ready hears it at once.
    set_policy(&server, "allkeys-lru");
    assert_refused(store.ready().await);
    set_policy(&server, "noeviction");
    store.ready().await.unwrap();
    set_policy(&server, "allkeys-lru");
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    refused(&store, "reconnected").await;
    set_policy(&server, "noeviction");
    store.ready().await.unwrap();
    assert_eq!(replayed(&store, &done).await, Some(Outcome::bytes("done")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_checked_first() {
    let group = RedisSentinel::start(1, 1).unwrap();
    let store = RedisStore::builder(group.url()).check_every(NEVER).open().await.unwrap();
    let done = held("done");
    run(&store, &done, "done").await;
    let first = group.primary().unwrap();
    let replica = group.servers().iter().find(|server| server.port() != first.port()).unwrap();
    set_policy(replica, "allkeys-lru");
    first.kill();
    tokio::task::block_in_place(|| group.primary_other_than(first)).unwrap();
    // No step is taken there, not even the first.
    let error = begin(&store, &held("new")).await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    refused(&store, "taken-over").await;
    set_policy(replica, "noeviction");
    store.ready().await.unwrap();
    run(&store, &held("after"), "done").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_takes_over_in_a_cluster_is_checked_first() {
    let cluster = RedisCluster::start(3, 1).unwrap();
    let builder = RedisStore::builder(cluster.url()).check_every(NEVER);
    let store = builder.reply_timeout(Duration::from_millis(500)).open().await.unwrap();
    let lost = cluster.primaries().unwrap()[0];
    let others: Vec<u16> = cluster.primaries().unwrap().iter().map(|node| node.port()).collect();
    let replicas = || cluster.nodes().iter().filter(|node| !others.contains(&node.port()));
    for replica in replicas() {
        set_policy(replica, "allkeys-lru");
    }
    lost.kill();
    tokio::task::block_in_place(|| cluster.healed_without(lost)).unwrap();
    refused(&store, "taken-over").await;
    for replica in replicas() {
        set_policy(replica, "noeviction");
    }
    until_ok(|| store.ready()).await;
}
