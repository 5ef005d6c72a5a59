//! The store stands still for longer than a lease, and then goes on, with all that was sent to it
//! meanwhile.

use std::time::Duration;

use justonce_testkit::history::Guarantee;

use crate::faults::stage::Stage;
use crate::faults::store::Store;

/// Effects before and after the pause.
const WORK: u64 = 100;
/// Much longer than the lease below.
const PAUSE: Duration = Duration::from_millis(2500);
/// A short lease, and gateways that soon hear that the store is silent.
const SETTINGS: &str = "[timeouts]\nstore = '1s'\n[defaults]\nlease = '1s'\n";

async fn stands_still(store: &Store, on_lapsed: &str) -> Stage {
    let settings = format!("{SETTINGS}on_lapsed = '{on_lapsed}'\n");
    let stage = Stage::new(&store.url(), 2, &settings).await;
    let load = stage.load();
    stage.works(WORK).await;
    let refused = stage.tally().unavailable;
    store.pause();
    tokio::time::sleep(PAUSE).await; // tidy: allow-sleep: time is what this is about
    stage.seen("a refusal", |tally| tally.unavailable > refused).await;
    store.resume();
    stage.works(WORK).await;
    load.stop().await;
    stage
}

async fn under_hold(store: Store) {
    let stage = stands_still(&store, "hold").await;
    let figures = stage.verdict(Guarantee::AtMostOnce).await.figures;
    assert!(figures.acknowledged >= 2 * WORK, "{figures:?}");
}

async fn under_rerun(store: Store) {
    let stage = stands_still(&store, "rerun").await;
    let figures = stage.verdict(Guarantee::AtLeastOnce).await.figures;
    assert_eq!(figures.unknown, 0, "{figures:?}");
    assert_eq!(figures.acknowledged, figures.operations, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_stands_still_under_hold() {
    under_hold(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_stands_still_under_rerun() {
    under_rerun(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_stands_still_under_hold() {
    under_hold(Store::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_stands_still_under_rerun() {
    under_rerun(Store::postgres()).await;
}
