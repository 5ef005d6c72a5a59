//! Servers that die, stop or refuse: every error says whether the step took place.

use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{
    Answer, Effect, Engine, Lost, OnLapsed, Outcome, Ran, StateName, StoreErrorKind,
};
use justonce_testbed::PostgresOptions;

use crate::stage::{Stage, begin, complete, hold, operation, rerun};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_said_to_be_and_found_again() {
    let mut stage = Stage::new().await;
    let fence = stage.claim(&hold("a")).await;
    stage.server.stop_immediate().unwrap();
    // The first may still go out on a connection that has just died.
    let _ = stage.store.apply(&begin(&hold("b"))).await;
    for step in [begin(&hold("b")), complete(&hold("a"), fence)] {
        let error = stage.store.apply(&step).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.effect(), Effect::NotApplied, "{error}");
    }
    assert!(stage.store.ready().await.is_err());
    stage.server.restart().unwrap();
    assert_eq!(stage.complete(&hold("a"), fence).await, Answer::Applied);
    stage.claim(&hold("b")).await;
    stage.store.ready().await.unwrap();
}

/// A step that waits for a lock is terminated. Nobody else knows that it was waiting: the same word
/// would have come after a commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_statement_may_have_been_applied() {
    let stage = Stage::new().await;
    let operation = rerun("a");
    let fence = stage.claim(&operation).await;
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT FROM justonce.records FOR UPDATE").await.unwrap();
    let store = stage.store.clone();
    let step = complete(&operation, fence);
    let waits = tokio::spawn(async move { store.apply(&step).await });
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE application_name = 'justonce' AND wait_event_type = 'Lock'";
    while stage.psql(terminate) == "0" {
        tokio::task::yield_now().await;
    }
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(error.effect(), Effect::MayHaveBeenApplied, "{error}");
    client.batch_execute("ROLLBACK").await.unwrap();
    let stored = stage.store.get(&operation.id()).await.unwrap().unwrap();
    assert_eq!(stored.entry.state_name(), StateName::InProgress);
    assert_eq!(stage.complete(&operation, fence).await, Answer::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_is_unavailable() {
    let stage = Stage::new().await;
    stage.claim(&rerun("a")).await;
    stage.psql("ALTER SYSTEM SET default_transaction_read_only = on");
    stage.psql("SELECT pg_reload_conf()");
    while stage.store.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    let error = stage.store.apply(&begin(&rerun("b"))).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(error.effect(), Effect::NotApplied, "{error}");
    // What only reads goes on, alone or together with others.
    let answers = (0..8).map(|_| {
        let (store, step) = (stage.store.clone(), begin(&hold("a")));
        tokio::spawn(async move { store.apply(&step).await })
    });
    for answer in answers.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap().unwrap().name(), "busy");
    }
    let answer = stage.store.apply(&begin(&rerun("a"))).await.unwrap();
    assert_eq!(answer.name(), "busy");
}

/// The server stands still for longer than a lease. Whoever comes first afterwards takes over,
/// and the old owner is fenced off.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_fences_the_old_owner_off() {
    let stage = Stage::new().await;
    let lease = Duration::from_millis(200);
    let operation = operation("a", OnLapsed::Rerun, lease);
    let old = stage.claim(&operation).await;
    stage.server.pause().unwrap();
    let waits = {
        let (store, step) = (stage.store.clone(), begin(&operation));
        tokio::spawn(async move { store.apply(&step).await })
    };
    tokio::time::sleep(lease * 2).await; // tidy: allow-sleep: the lease must lapse on the server
    assert!(!waits.is_finished(), "a paused server answered");
    stage.server.resume().unwrap();
    let answer = waits.await.unwrap().unwrap();
    let Answer::Claimed(new) = answer else { panic!("{answer:?}") };
    assert!(new.fence > old);
    assert_eq!(stage.complete(&operation, old).await, Answer::Lost(Lost::Superseded));
    assert_eq!(stage.complete(&operation, new.fence).await, Answer::Applied);
}

/// The server crashes and comes back while many work. Nothing acknowledged is lost, and under
/// `hold` nothing runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_under_load_loses_nothing_acknowledged() {
    const WORKERS: usize = 8;
    const EACH: usize = 60;
    let options = PostgresOptions { fsync: true, ..PostgresOptions::default() };
    let mut stage = Stage::with(options).await;
    let engine = Engine::new(stage.store.clone());
    let (done, mut count) = tokio::sync::mpsc::unbounded_channel();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (engine, done) = (engine.clone(), done.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for number in 0..EACH {
                    let name = format!("{worker}-{number}");
                    let outcome = Outcome::bytes(name.clone());
                    let run = engine.run(&hold(&name), async |_| Ok(outcome.clone())).await;
                    if let Ok(Ran::Executed(_)) = run {
                        acknowledged.push((name, outcome));
                    }
                    done.send(()).unwrap();
                }
                acknowledged
            })
        })
        .collect();
    for _ in 0..WORKERS * EACH / 3 {
        count.recv().await.unwrap();
    }
    stage.server.stop_immediate().unwrap();
    stage.server.restart().unwrap();
    let mut acknowledged = Vec::new();
    for worker in workers {
        acknowledged.extend(worker.await.unwrap());
    }
    assert!(acknowledged.len() > WORKERS * EACH / 4, "only {}", acknowledged.len());
    for (name, outcome) in acknowledged {
        let again = engine.run(&hold(&name), async |_| panic!("{name} ran twice")).await.unwrap();
        assert_eq!(again, Ran::Replayed(outcome), "{name}");
    }
}
