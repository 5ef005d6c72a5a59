//! How many statements and how many syncs an operation costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{
    Action, Answer, Engine, OnLapsed, Operation, Outcome, Ran, Step, Timestamp, UnknownReason,
};
use justonce_postgres::PostgresStore;
use justonce_testbed::{PostgresOptions, PostgresServer};

use crate::stage::{Stage, begin, claim, hold, open, operation, rerun};
use crate::together::at_once;

const COUNT: &str = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                     WHERE query NOT LIKE '%pg_stat_statements%'";
const WRITES: &str = "SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables";

#[tokio::test]
async fn a_first_time_costs_two_statements_and_a_duplicate_one() {
    let stage = Stage::new().await;
    stage.psql("CREATE EXTENSION pg_stat_statements");
    // One connection: an answer may come before its connection is back, and the next step would
    // make a second one, whose settings are statements too.
    let store = PostgresStore::builder(stage.server.url()).connections(1).open().await.unwrap();
    let engine = Engine::new(store);
    let run = async |operation: &Operation| {
        engine.run(operation, async |_| Ok(Outcome::bytes("done"))).await.unwrap()
    };
    // The first one also makes the connection.
    run(&rerun("warm")).await;
    for operation in [rerun("a"), hold("b")] {
        for (expected, executed) in [("2", true), ("1", false), ("1", false)] {
            stage.psql("SELECT pg_stat_statements_reset()");
            let ran = run(&operation).await;
            assert_eq!(matches!(ran, Ran::Executed(_)), executed, "{ran:?}");
            assert_eq!(stage.psql(COUNT), expected, "statements of {ran:?}");
        }
    }
}

#[tokio::test]
async fn a_duplicate_writes_nothing_and_waits_for_no_lock() {
    let stage = Stage::new().await;
    let operation = rerun("a");
    let fence = stage.claim(&operation).await;
    stage.complete(&operation, fence).await;
    let before = stage.psql("SELECT xmin, xmax, ctid FROM justonce.records");
    let (client, connection) =
        tokio_postgres::connect(&stage.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT * FROM justonce.records FOR UPDATE").await.unwrap();
    let lsn = stage.psql("SELECT pg_current_wal_insert_lsn()");
    for _ in 0..10 {
        let answer = stage.store.apply(&begin(&operation)).await.unwrap();
        assert!(answer.completed().is_some(), "{answer:?}");
    }
    assert_eq!(stage.psql("SELECT pg_current_wal_insert_lsn()"), lsn, "no log was written");
    client.batch_execute("ROLLBACK").await.unwrap();
    let after = stage.psql("SELECT xmin, ctid FROM justonce.records");
    let [xmin, _, ctid] = before.split('|').collect::<Vec<_>>()[..] else { panic!("{before}") };
    assert_eq!(after, format!("{xmin}|{ctid}"), "the row is the same");
    assert!(!stage.psql(WRITES).is_empty());
}

/// A server that writes its log to disk only when a commit wants it.
fn lazy() -> PostgresOptions {
    let settings = [("wal_writer_delay", "10s"), ("autovacuum", "off")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    PostgresOptions { fsync: true, settings, ..PostgresOptions::default() }
}

/// At the end of a page of the log, the next record comes after the header of the next one: at most
/// 40 bytes, and less than any step writes.
const ON_DISK: &str = "SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn() <= 40";

#[tokio::test]
async fn only_what_the_promise_needs_waits_for_the_disk() {
    let stage = Stage::with(lazy()).await;
    stage.psql("CHECKPOINT");
    let operation = rerun("a");
    let fence = stage.claim(&operation).await;
    assert_eq!(stage.psql(ON_DISK), "f", "a first claim under rerun waited for the disk");
    stage.complete(&operation, fence).await;
    assert_eq!(stage.psql(ON_DISK), "t", "an outcome was not on disk");
    stage.claim(&hold("b")).await;
    assert_eq!(stage.psql(ON_DISK), "t", "a claim under hold was not on disk");
}

/// A takeover is more than a first claim: the attempts before must not be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn claims_under_rerun_that_go_together_wait_for_the_disk_only_to_take_over() {
    let stage = Stage::with(lazy()).await;
    let store = Arc::new(stage.store.clone());
    let short = |at| operation(&format!("short-{at}"), OnLapsed::Rerun, Duration::from_millis(10));
    let steps = |named: &dyn Fn(u32) -> Operation| {
        let steps = (0..40).map(|at| (Arc::clone(&store), begin(&named(at))));
        steps.collect::<Vec<_>>()
    };
    stage.psql("CHECKPOINT");
    for round in 0..3 {
        for answer in at_once(steps(&|at| rerun(&format!("{round}-{at}")))).await {
            assert!(matches!(answer.unwrap(), Answer::Claimed(_)));
        }
        assert_eq!(stage.psql(ON_DISK), "f", "first claims waited for the disk");
    }
    for attempt in 1..4 {
        for answer in at_once(steps(&short)).await {
            let answer = answer.unwrap();
            let Answer::Claimed(claimed) = answer else { panic!("{answer:?}") };
            assert_eq!(claimed.attempt, attempt);
        }
        assert_eq!(stage.psql(ON_DISK), if attempt == 1 { "f" } else { "t" }, "{attempt}");
        let held = "SELECT count(*) FROM justonce.records \
                    WHERE key LIKE '%short%' AND lease_until > justonce.millis_1()";
        while stage.psql(held) != "0" {}
    }
}

#[tokio::test]
async fn a_fence_is_never_given_again_after_a_crash_that_forgot_it() {
    let mut stage = Stage::with(lazy()).await;
    stage.psql("CHECKPOINT");
    let kept = stage.claim(&hold("kept")).await;
    let mut newest = kept;
    let forgotten = rerun("forgotten");
    for round in 0..3 {
        for other in 0..40 {
            newest = newest.max(stage.claim(&rerun(&format!("{round}-{other}"))).await);
        }
        let lost = stage.claim(&forgotten).await;
        stage.server.stop_immediate().unwrap();
        stage.server.restart().unwrap();
        stage.store = open(&stage.server).await;
        assert!(stage.store.get(&forgotten.id()).await.unwrap().is_none(), "it was not forgotten");
        assert!(stage.store.get(&hold("kept").id()).await.unwrap().is_some(), "it was forgotten");
        let next = stage.claim(&hold(&format!("next-{round}"))).await;
        assert!(next > lost && lost > newest, "{next} after {lost} after {newest}");
        newest = next;
    }
}

/// As after a backup was restored beside records that are newer.
#[tokio::test]
async fn fences_of_a_record_grow_when_the_sequence_was_set_back() {
    let stage = Stage::new().await;
    stage.psql("SELECT setval('justonce.fences', 1000)");
    let operation = rerun("taken-over");
    let first = stage.claim(&operation).await;
    stage.psql("SELECT setval('justonce.fences', 1)");
    let abandon = Action::Abandon(first, UnknownReason::Reported.into());
    stage.store.apply(&Step::new(operation.id(), abandon)).await.unwrap();
    let second = stage.claim(&operation).await;
    assert_eq!((first.get(), second.get()), (1001, 1002));
}

#[tokio::test]
async fn a_clock_that_was_set_back_shortens_no_lease() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let seconds = Arc::new(AtomicU64::new(1_000_000));
    let shown = Arc::clone(&seconds);
    let clock = move || Timestamp::from_millis(shown.load(Ordering::SeqCst) * 1000);
    let store = PostgresStore::builder(server.url()).clock(clock).open().await.unwrap();
    let operation = rerun("renewed");
    let fence = claim(&store, &operation).await;
    for (second, left) in [(1_000_010, 30), (1_000_005, 35), (1_000_020, 30)] {
        seconds.store(second, Ordering::SeqCst);
        let renewed = store.apply(&Step::new(operation.id(), Action::Renew(fence))).await;
        assert_eq!(renewed.unwrap(), Answer::Renewed(Duration::from_secs(left)));
    }
}
