//! The store is killed under load and comes back: 503 meanwhile, and then all goes on by itself.

use justonce_testbed::RedisServer;
use justonce_testkit::history::{Guarantee, OffenceKind, judge};

use crate::faults::load::audit;
use crate::faults::stage::Stage;
use crate::faults::store::Store;

/// Effects before and after each fault.
const WORK: u64 = 100;

async fn survives(mut store: Store) {
    let stage = Stage::new(&store.url(), 2, "").await;
    let load = stage.load();
    for round in 0..2 {
        stage.works(WORK).await;
        store.kill();
        stage.refuses(&format!("away-{round}")).await;
        store.restart();
        stage.works(WORK).await;
    }
    load.stop().await;
    store.drop_cache();
    let figures = stage.verdict(Guarantee::AtMostOnce).await.figures;
    // Every gateway lives, so every owner says in the end what it did.
    assert_eq!(figures.unknown, 0, "{figures:?}");
    assert_eq!(figures.acknowledged, figures.effects, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_under_load() {
    survives(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_killed_under_load() {
    survives(Store::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_killed_behind_redis_under_load() {
    survives(Store::tiered()).await;
}

/// The checker really notices: a Redis that keeps nothing on disk forgets with a kill what it
/// acknowledged, and everything is done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_forgets_is_noticed() {
    let server = RedisServer::start().unwrap();
    let stage = Stage::new(&server.url(), 2, "").await;
    let load = stage.load();
    stage.works(WORK).await;
    load.stop().await;
    server.kill();
    server.restart().unwrap();
    audit(&stage.addresses(), &stage.recorder).await;
    let verdict = judge(&stage.recorder.history(), Guarantee::AtMostOnce);
    for kind in [OffenceKind::Twice, OffenceKind::TwoOutcomes, OffenceKind::Forgotten] {
        let noticed = verdict.offences.iter().filter(|offence| offence.kind == kind).count() as u64;
        assert!(noticed >= WORK, "{kind:?}: {verdict}");
    }
}

/// Losing the Redis of a tiered store loses nothing, and no request is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_in_front_of_postgres_under_load() {
    let store = Store::tiered();
    let Store::Tiered(redis, _) = &store else { panic!("these are tiers") };
    let stage = Stage::new(&store.url(), 2, "").await;
    let load = stage.load();
    stage.works(WORK).await;
    redis.kill();
    stage.works(WORK).await;
    redis.restart().unwrap();
    stage.works(WORK).await;
    redis.pause().unwrap();
    stage.works(WORK).await;
    redis.resume().unwrap();
    stage.works(WORK).await;
    load.stop().await;
    let figures = stage.verdict(Guarantee::AtMostOnce).await.figures;
    assert_eq!(figures.acknowledged, figures.effects, "{figures:?}");
    assert_eq!(stage.tally().unavailable, 0, "nobody was refused");
}
