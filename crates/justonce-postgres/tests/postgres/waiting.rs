//! Those who wait are woken by the server, also by the doings of another process.

use std::sync::Arc;

use justonce_core::store::Records;
use justonce_core::{ClaimEnd, Operation, StoreErrorKind, StoreResult};
use justonce_postgres::PostgresStore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, claim, complete, open, rerun};

const WAITS: &str = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                     WHERE query LIKE 'SELECT%.wait_1(%'";
const ALL: &str = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                   WHERE query NOT LIKE '%pg_stat_%'";

/// Starts to wait on another store, and returns once the record knows of it.
async fn waiter(
    stage: &Stage,
    other: &Arc<PostgresStore>,
    operation: &Operation,
) -> JoinHandle<StoreResult<Option<ClaimEnd>>> {
    let fence = stage.claim(operation).await;
    let (store, id) = (Arc::clone(other), operation.id());
    let waiting = tokio::spawn(async move { store.settled(&id, fence).await });
    let announced = format!("SELECT waited FROM justonce.records WHERE id = '\\x{id}'");
    while stage.psql(&announced) != "t" {
        tokio::task::yield_now().await;
    }
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_costs_one_statement_and_no_more() {
    let stage = Stage::new().await;
    stage.psql("CREATE EXTENSION pg_stat_statements");
    let other = Arc::new(open(&stage.server).await);
    let operation = rerun("a");
    let waiting = waiter(&stage, &other, &operation).await;
    assert_eq!(stage.psql(WAITS), "1");
    stage.psql("SELECT pg_stat_statements_reset()");
    // Others come and go meanwhile, and disturb nobody.
    for number in 0..20 {
        let other = rerun(&format!("other-{number}"));
        let fence = stage.claim(&other).await;
        stage.complete(&other, fence).await;
    }
    assert!(!waiting.is_finished());
    assert_eq!(stage.psql(ALL), "40", "the waiter asked again");
    let fence = stage.store.get(&operation.id()).await.unwrap().unwrap().entry.fence();
    stage.store.apply(&complete(&operation, fence)).await.unwrap();
    timeout(PROMPTLY, waiting).await.expect("nobody woke the waiter").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_wakes_everybody() {
    let stage = Stage::new().await;
    let other = Arc::new(open(&stage.server).await);
    let waiting = waiter(&stage, &other, &rerun("a")).await;
    stage.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'");
    timeout(PROMPTLY, waiting).await.expect("it still waits").unwrap().unwrap();
    // It is remade: what waits meanwhile is no failure, and is woken.
    let operation = rerun("b");
    let fence = stage.claim(&operation).await;
    let id = operation.id();
    let again = tokio::spawn(async move { other.settled(&id, fence).await });
    stage.complete(&operation, fence).await;
    timeout(PROMPTLY, again).await.expect("nobody woke the waiter").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_cannot_be_made_is_reported() {
    let mut stage = Stage::new().await;
    let operation = rerun("a");
    let fence = stage.claim(&operation).await;
    stage.server.stop_immediate().unwrap();
    let id = operation.id();
    let settled = stage.store.settled(&id, fence);
    let settled = timeout(PROMPTLY, settled).await.expect("it waits for a server that is away");
    assert_eq!(settled.unwrap_err().kind(), StoreErrorKind::Unavailable);
}

/// The waiter has read that the claim runs, and waits for the lock of its record when the claim is
/// given up.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_a_claim_is_given_up_does_not_wait_for_its_lease() {
    let stage = Stage::new().await;
    let operation = rerun("ship");
    let fence = claim(&stage.store, &operation).await;
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT FROM justonce.records FOR UPDATE").await.unwrap();
    let (store, id) = (stage.store.clone(), operation.id());
    let waiter = tokio::spawn(async move { store.settled(&id, fence).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while stage.psql(waits) == "0" {}
    let given_up = "SELECT justonce.write_1(NULL, id, 'abandon', fence, NULL, NULL, NULL, NULL, \
                    NULL, NULL, NULL, NULL, 'dropped', NULL, NULL) FROM justonce.records; COMMIT";
    client.batch_execute(given_up).await.unwrap();
    let settled = timeout(PROMPTLY, waiter).await.expect("it waits for the lease").unwrap();
    settled.unwrap();
}
