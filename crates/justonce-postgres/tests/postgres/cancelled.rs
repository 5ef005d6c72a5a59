//! Whoever stops waiting leaves nothing behind that others wait for.

use std::time::Duration;

use justonce_core::StateName;
use justonce_core::store::{ListQuery, Maintenance, Records};
use justonce_postgres::PostgresStore;
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, begin, claim, complete, hold};

/// Longer than a statement takes that waits for nobody.
const PATIENCE: Duration = Duration::from_millis(100);
/// Statements of ours that the server still works on.
const AT_WORK: &str = "SELECT count(*) FROM pg_stat_activity \
                       WHERE application_name = 'justonce' AND state = 'active'";

/// A connection that holds the whole table, so that every statement on it waits.
async fn locked(stage: &Stage) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock = "BEGIN; LOCK TABLE justonce.records IN ACCESS EXCLUSIVE MODE";
    client.batch_execute(lock).await.unwrap();
    client
}

async fn ended(stage: &Stage) {
    let ended = async {
        while stage.psql(AT_WORK) != "0" {
            tokio::task::yield_now().await;
        }
    };
    timeout(PROMPTLY, ended).await.expect("the server still works for somebody who has gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_nobody_waits_for_is_cancelled_and_no_step_waits_for_it() {
    let stage = Stage::new().await;
    let store = PostgresStore::builder(stage.server.url()).connections(1).open().await.unwrap();
    claim(&store, &hold("a")).await;
    let client = locked(&stage).await;
    let query = ListQuery { state: Some(StateName::Unknown), ..ListQuery::default() };
    for _ in 0..6 {
        assert!(timeout(PATIENCE, store.list(&query)).await.is_err(), "the table is locked");
        assert!(timeout(PATIENCE, store.stats()).await.is_err(), "the table is locked");
        assert!(timeout(PATIENCE, store.get(&hold("a").id())).await.is_err());
    }
    timeout(PROMPTLY, store.ready()).await.expect("a step waited for a read").unwrap();
    ended(&stage).await;
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(store.list(&query).await.unwrap().records.len(), 0);
}

/// While reads are under way, steps have their own connections.
#[tokio::test(flavor = "multi_thread")]
async fn no_step_waits_for_reads_that_are_slow() {
    let stage = Stage::new().await;
    let store = PostgresStore::builder(stage.server.url()).connections(1).open().await.unwrap();
    claim(&store, &hold("a")).await;
    let client = locked(&stage).await;
    let reads: Vec<_> = (0..10)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.get(&hold("a").id()).await })
        })
        .collect();
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while stage.psql(waits) == "0" {}
    timeout(PROMPTLY, store.ready()).await.expect("a step waited for a read").unwrap();
    client.batch_execute("ROLLBACK").await.unwrap();
    for read in reads {
        let read = timeout(PROMPTLY, read).await.unwrap().unwrap();
        assert!(read.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_nobody_waits_for_is_cancelled_and_no_other_waits_for_it() {
    let stage = Stage::new().await;
    let store = PostgresStore::builder(stage.server.url()).connections(1).open().await.unwrap();
    let fence = claim(&store, &hold("a")).await;
    let client = locked(&stage).await;
    let renew = justonce_core::Step::new(hold("a").id(), justonce_core::Action::Renew(fence));
    assert!(timeout(PATIENCE, store.apply(&renew)).await.is_err(), "the table is locked");
    timeout(PROMPTLY, store.ready()).await.expect("a step waited for another").unwrap();
    ended(&stage).await;
    client.batch_execute("ROLLBACK").await.unwrap();
    store.apply(&complete(&hold("a"), fence)).await.unwrap();
    assert!(store.apply(&begin(&hold("a"))).await.unwrap().completed().is_some());
}
