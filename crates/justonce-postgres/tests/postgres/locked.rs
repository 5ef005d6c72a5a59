//! Records that somebody else has locked.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{Action, Answer, Effect, OnLapsed, Operation, Step, StoreErrorKind};
use tokio::time::timeout;

use crate::stage::{PROMPTLY, Stage, begin, complete, hold, operation};
use crate::together::at_once;

/// Claims that have lapsed: a begin of one needs the lock of its record.
async fn lapsed(stage: &Stage, count: u32) -> Vec<Operation> {
    let named = |at| operation(&format!("lapsed-{at}"), OnLapsed::Hold, Duration::from_millis(10));
    let operations: Vec<_> = (0..count).map(named).collect();
    for operation in &operations {
        stage.claim(operation).await;
    }
    let over = "SELECT count(*) FROM justonce.records WHERE due <= justonce.millis_1()";
    while stage.psql(over) != count.to_string() {}
    operations
}

/// A connection that has locked all records there are.
async fn lock(stage: &Stage) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT * FROM justonce.records FOR UPDATE").await.unwrap();
    client
}

/// As many as there are lanes and more, all of one record or each of its own.
#[tokio::test(flavor = "multi_thread")]
async fn begins_of_locked_records_stop_nobody_else_and_are_told_in_time() {
    for records in [1, 40] {
        let stage = Stage::new().await;
        let store = Arc::new(stage.store.clone());
        let locked = lapsed(&stage, records).await;
        let client = lock(&stage).await;
        let stopped: Vec<_> = (0..40)
            .map(|at| {
                let (store, step) = (Arc::clone(&store), begin(&locked[at % locked.len()]));
                tokio::spawn(async move { store.apply(&step).await })
            })
            .collect();
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while stage.psql(waits) == "0" {}
        for round in 0..5 {
            let others =
                (0..20).map(|at| (Arc::clone(&store), begin(&hold(&format!("{round}-{at}")))));
            for answer in timeout(PROMPTLY, at_once(others)).await.expect("others waited") {
                assert!(matches!(answer.unwrap(), Answer::Claimed(_)));
            }
        }
        assert!(stopped.iter().any(|one| !one.is_finished()), "the lock was not waited for");
        for stopped in stopped {
            let error = timeout(PROMPTLY, stopped).await.expect("it waits on and on");
            let error = error.unwrap().unwrap_err();
            assert_eq!(error.effect(), Effect::NotApplied, "{error}");
            assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{error}");
        }
        client.batch_execute("ROLLBACK").await.unwrap();
        let answer = store.apply(&begin(&locked[0])).await.unwrap();
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_of_locked_records_stop_nobody_else_and_are_told_in_time() {
    let stage = Stage::new().await;
    let store = Arc::new(stage.store.clone());
    let mut completions = Vec::new();
    for at in 0..20 {
        let operation = hold(&format!("locked-{at}"));
        let fence = stage.claim(&operation).await;
        completions.push((Arc::clone(&store), complete(&operation, fence)));
    }
    let client = lock(&stage).await;
    let mut others = Vec::new();
    for at in 0..20 {
        let operation = hold(&format!("other-{at}"));
        let fence = stage.claim(&operation).await;
        others.push((Arc::clone(&store), complete(&operation, fence)));
    }
    let stopped = tokio::spawn(at_once(completions.clone()));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while stage.psql(waits) == "0" {}
    for answer in timeout(PROMPTLY, at_once(others)).await.expect("others waited") {
        assert_eq!(answer.unwrap(), Answer::Applied);
    }
    assert!(!stopped.is_finished(), "the lock was not waited for");
    for error in timeout(PROMPTLY, stopped).await.expect("they wait on and on").unwrap() {
        let error = error.unwrap_err();
        assert_eq!(error.effect(), Effect::NotApplied, "{error}");
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    for answer in at_once(completions).await {
        assert_eq!(answer.unwrap(), Answer::Applied);
    }
}

/// Somebody has a record for a moment, as a transaction does that is about to commit: whoever needs
/// it then gets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_moment_is_waited_for() {
    let stage = Stage::new().await;
    let store = Arc::new(stage.store.clone());
    let [operation] = &lapsed(&stage, 1).await[..] else { unreachable!() };
    let running = hold("running");
    let fence = stage.claim(&running).await;
    let client = lock(&stage).await;
    let steps = [begin(operation), Step::new(running.id(), Action::Renew(fence))];
    let asked = steps.map(|step| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.apply(&step).await })
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while stage.psql(waits) != "2" {}
    client.batch_execute("ROLLBACK").await.unwrap();
    let [begun, renewed] = asked;
    let answer = begun.await.unwrap().unwrap();
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    let answer = renewed.await.unwrap().unwrap();
    assert!(matches!(answer, Answer::Renewed(_)), "{answer:?}");
}
