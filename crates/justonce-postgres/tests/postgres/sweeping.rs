//! A sweep waits for nobody, and nobody for a sweep.

use justonce_core::store::{Maintenance, Records, SweepReport};
use justonce_core::{Answer, ManualClock, Timestamp};
use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, begin, claim, complete, rerun};

const RECORDS: u64 = 450;

/// A store whose retentions are all over.
async fn stale() -> Stage {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1_750_000_000_000));
    let store = PostgresStore::builder(server.url()).clock(clock.clone()).open().await.unwrap();
    for number in 0..RECORDS {
        let operation = rerun(&format!("old-{number}"));
        let fence = claim(&store, &operation).await;
        store.apply(&complete(&operation, fence)).await.unwrap();
    }
    clock.advance(rerun("old").policy().retention());
    Stage { server, store }
}

#[tokio::test]
async fn a_sweep_skips_what_others_work_on() {
    let stage = stale().await;
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock = "BEGIN; SELECT FROM justonce.records ORDER BY due, id LIMIT 7 FOR UPDATE";
    client.batch_execute(lock).await.unwrap();
    let mut removed = 0;
    for _ in 0..10 {
        let sweep = timeout(PROMPTLY, stage.store.sweep(usize::MAX)).await;
        removed += sweep.expect("the sweep waited").unwrap().removed;
    }
    assert_eq!(removed, RECORDS - 7);
    client.batch_execute("ROLLBACK").await.unwrap();
    let rest = stage.store.sweep(usize::MAX).await.unwrap();
    assert_eq!(rest, SweepReport { removed: 7, ..SweepReport::default() });
}

#[tokio::test]
async fn nobody_waits_for_a_sweep() {
    let stage = stale().await;
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sweep = "BEGIN; SELECT justonce.sweep_1(NULL, NULL, 200)";
    client.batch_execute(sweep).await.unwrap();
    let new = rerun("new");
    let fence = timeout(PROMPTLY, claim(&stage.store, &new)).await.expect("a begin waited");
    let done = complete(&new, fence);
    let answer = timeout(PROMPTLY, stage.store.apply(&done)).await.expect("a complete waited");
    assert_eq!(answer.unwrap(), Answer::Applied);
    let again = timeout(PROMPTLY, stage.store.apply(&begin(&new))).await;
    assert!(again.expect("a duplicate waited").unwrap().completed().is_some());
    client.batch_execute("ROLLBACK").await.unwrap();
}
