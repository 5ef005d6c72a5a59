//! A thousand identical requests, spread over gateways: one execution.

use justonce_testkit::history::{Guarantee, Reply};
use tokio::task::JoinSet;

use crate::faults::stage::Stage;
use crate::faults::store::Store;

/// How many requests there are for one operation.
const REQUESTS: usize = 1000;
/// How many are told that it is running before the service answers.
const TOLD: u64 = 200;

/// Everybody asks at once; every second one is willing to wait.
async fn crowd(stage: &Stage, gateways: usize) {
    let key = format!("crowd-of-{gateways}");
    let before = stage.tally();
    let held = stage.ledger.hold(&key);
    let mut asking = JoinSet::new();
    for number in 0..REQUESTS {
        let mut client = stage.client(number % gateways);
        let (key, wait) = (key.clone(), if number % 4 < 2 { 20 } else { 0 });
        asking.spawn(async move { (wait > 0, client.ask(&key, wait).await) });
    }
    let told = before.in_flight + TOLD;
    stage.seen("busy replies", |tally| tally.in_flight >= told).await;
    held.let_go();
    let mut executed = 0;
    for (waits, heard) in asking.join_all().await {
        match heard.reply {
            Reply::Acknowledged { replayed, .. } => executed += usize::from(!replayed),
            Reply::InFlight => assert!(!waits, "told to come again although it waited"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(executed, 1, "answers of the service itself");
    assert_eq!(stage.tally().effects, before.effects + 1);
}

async fn one_execution(store: Store) {
    let stage = Stage::new(&store.url(), 3, "").await;
    for gateways in [2, 3] {
        crowd(&stage, gateways).await;
    }
    store.drop_cache();
    let figures = stage.verdict(Guarantee::AtMostOnce).await.figures;
    assert_eq!((figures.operations, figures.effects, figures.acknowledged), (2, 2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_identical_requests_on_redis() {
    one_execution(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_identical_requests_on_postgres() {
    one_execution(Store::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_identical_requests_on_tiered() {
    one_execution(Store::tiered()).await;
}
