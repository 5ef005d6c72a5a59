//! The chapters in which servers take part, on a cluster: the rules themselves are compared on a
//! single node.

use std::sync::Arc;

use justonce_core::{ManualClock, StoreResult};
use justonce_redis::RedisStore;
use justonce_testbed::RedisCluster;
use justonce_testkit::conformance::{
    Backend, OnManualClock, Survival, Verdict, fencing, races_50, run, stats, sweep, waiters,
};

async fn on_cluster() -> StoreResult<impl Backend> {
    let cluster = Arc::new(RedisCluster::start(3, 0).unwrap());
    OnManualClock::open(Survival::Durable, move |clock: ManualClock| {
        let cluster = Arc::clone(&cluster);
        async move { RedisStore::builder(cluster.url()).clock(clock).open().await }
    })
    .await
}

#[test]
fn races() -> Verdict {
    run(on_cluster, races_50)
}

#[test]
fn fences() -> Verdict {
    run(on_cluster, fencing)
}

#[test]
fn waits() -> Verdict {
    run(on_cluster, waiters)
}

#[test]
fn sweeps() -> Verdict {
    run(on_cluster, sweep)
}

#[test]
fn figures() -> Verdict {
    run(on_cluster, stats)
}
