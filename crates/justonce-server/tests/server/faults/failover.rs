//! Primaries of Redis are lost and replaced under load. With `wait_replicas` as many as there are
//! replicas, the promoted one has everything that was acknowledged.

use justonce_testbed::{RedisCluster, RedisSentinel};

use crate::faults::stage::Stage;

/// Effects before and after each fault.
const WORK: u64 = 100;
/// Every write is on the one replica before it counts.
const CONFIRMED: &str = "[redis]\nwait_replicas = 1\nwait_timeout = '500ms'\n";
/// How many slots move from one primary to another; about 25 of 256 buckets.
const SLOTS: u16 = 1600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_replace_the_primary_under_load() {
    let group = RedisSentinel::start(1, 3).unwrap();
    let stage = Stage::new(&group.url(), 2, CONFIRMED).await;
    let load = stage.load();
    stage.works(WORK).await;
    let first = group.primary().unwrap();
    first.kill();
    stage.refuses("away").await;
    group.primary_other_than(first).unwrap();
    // Nothing is acknowledged by one server alone, so the new primary needs a replica first.
    first.restart().unwrap();
    stage.works(WORK).await;
    load.stop().await;
    stage.all_done_once().await;
}

/// The old primary lives on as a replica, and tells those who wait for its replicas to go away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_orders_a_failover_under_load() {
    let group = RedisSentinel::start(1, 3).unwrap();
    let stage = Stage::new(&group.url(), 2, CONFIRMED).await;
    let load = stage.load();
    stage.works(WORK).await;
    let old = group.primary().unwrap();
    group.sentinels()[0].cli(&["SENTINEL", "FAILOVER", "main"]).unwrap();
    group.primary_other_than(old).unwrap();
    stage.works(WORK).await;
    load.stop().await;
    stage.all_done_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let stage = Stage::new(&cluster.url(), 2, "").await;
    let load = stage.load();
    stage.works(WORK).await;
    let primaries = cluster.primaries().unwrap();
    cluster.reshard(primaries[0], primaries[1], SLOTS).unwrap();
    stage.works(WORK).await;
    cluster.reshard(primaries[1], primaries[2], SLOTS).unwrap();
    stage.works(WORK).await;
    load.stop().await;
    stage.all_done_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_replaces_a_primary_of_a_cluster_under_load() {
    let cluster = RedisCluster::start(3, 1).unwrap();
    let stage = Stage::new(&cluster.url(), 2, CONFIRMED).await;
    let load = stage.load();
    stage.works(WORK).await;
    let lost = cluster.primaries().unwrap()[0];
    lost.kill();
    cluster.healed_without(lost).unwrap();
    lost.restart().unwrap();
    stage.works(WORK).await;
    load.stop().await;
    stage.all_done_once().await;
}
