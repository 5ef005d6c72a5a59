//! What a handler may do, and what becomes of it.

use std::time::Duration;

use justonce_core::engine::Context;
use justonce_core::store::Records;
use justonce_core::{
    Answer, Engine, HandlerError, ManualClock, Outcome, Owner, Ran, Step, Timestamp, Token,
};
use justonce_postgres::PostgresStore;
use justonce_postgres::tx::{Completion, Delivery, Tx};

use super::bank::{Bank, operation, receipt, transfer, until_done};

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_is_executed_once_and_replayed() {
    let bank = Bank::open();
    let store = bank.store().await;
    assert_eq!(until_done(&store, "a").await, Ran::Executed(receipt("a")));
    assert_eq!(until_done(&store, "a").await, Ran::Replayed(receipt("a")));
    bank.ensure(&["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_commits() {
    let bank = Bank::open();
    let store = bank.store().await;
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { until_done(&store, ["a", "b"][n % 2]).await })
        })
        .collect();
    let mut executed = 0;
    for task in tasks {
        executed += usize::from(matches!(task.await.unwrap(), Ran::Executed(_)));
    }
    assert_eq!(executed, 2);
    bank.ensure(&["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_is_rolled_back() {
    let bank = Bank::open();
    let store = bank.store().await;
    let engine = Engine::new(store.clone());

    let fails = async |tx: Tx, context: Context| {
        transfer(&tx, &context).await?;
        Err(HandlerError::permanent("no"))
    };
    let ran = store.transactional(&engine, &operation("fails"), fails).await.unwrap();
    assert_eq!(ran, Ran::Failed(Outcome::bytes("no")));

    // An error that the handler does not mind: PostgreSQL does.
    let swallows = async |tx: Tx, context: Context| {
        let done = transfer(&tx, &context).await;
        tx.execute("SELECT no_such_thing", &[]).await.unwrap_err();
        done
    };
    let ran = store.transactional(&engine, &operation("swallows"), swallows).await.unwrap();
    assert!(matches!(ran, Ran::Failed(_)), "{ran:?}");

    // An error that comes with the commit.
    let deferred = async |tx: Tx, context: Context| {
        tx.execute("INSERT INTO payees VALUES ('bob')", &[]).await?;
        transfer(&tx, &context).await
    };
    let ran = store.transactional(&engine, &operation("deferred"), deferred).await.unwrap();
    assert!(matches!(ran, Ran::Failed(_)), "{ran:?}");

    let panics = {
        let (store, engine) = (store.clone(), engine.clone());
        let handler = async |tx: Tx, context: Context| {
            transfer(&tx, &context).await?;
            panic!("on purpose")
        };
        tokio::spawn(
            async move { store.transactional(&engine, &operation("panics"), handler).await },
        )
    };
    assert!(panics.await.unwrap_err().is_panic());
    bank.ensure::<&str>(&[]);
    // The connections are as good as new.
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(until_done(&store, name).await, Ran::Executed(receipt(name)));
    }
    bank.ensure(&["a", "b", "c", "d", "e"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_or_kept_transaction_is_rolled_back() {
    let bank = Bank::open();
    let store = bank.store().await;
    let engine = Engine::new(store.clone());
    let (written, wait) = tokio::sync::oneshot::channel();
    let never_ends = {
        let (store, engine) = (store.clone(), engine.clone());
        let handler = async |tx: Tx, context: Context| {
            transfer(&tx, &context).await?;
            written.send(()).unwrap();
            std::future::pending().await
        };
        tokio::spawn(
            async move { store.transactional(&engine, &operation("dropped"), handler).await },
        )
    };
    wait.await.unwrap();
    never_ends.abort();
    assert!(never_ends.await.unwrap_err().is_cancelled());
    assert_eq!(until_done(&store, "dropped").await, Ran::Executed(receipt("dropped")));

    let mut kept = None;
    let keeps = async |tx: Tx, context: Context| {
        let done = transfer(&tx, &context).await;
        kept = Some(tx);
        done
    };
    let ran = store.transactional(&engine, &operation("kept"), keeps).await.unwrap();
    assert!(matches!(ran, Ran::Failed(_)), "{ran:?}");
    drop(kept);
    bank.ensure(&["dropped"]);
}

/// The only connection is busy with what a handler asked for that nobody waits for any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_a_dropped_handler_keeps_nobody_waiting() {
    let bank = Bank::open();
    let builder = PostgresStore::builder(bank.server.url()).transactions(1);
    let store = builder.open().await.unwrap();
    let engine = Engine::new(store.clone());
    let asks = async |tx: Tx, context: Context| {
        transfer(&tx, &context).await?;
        tx.execute("SELECT pg_sleep(600)", &[]).await?;
        Ok(receipt("slow"))
    };
    let never_ends = {
        let (store, engine) = (store.clone(), engine.clone());
        tokio::spawn(async move { store.transactional(&engine, &operation("slow"), asks).await })
    };
    let at_work = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    while bank.server.psql(at_work).unwrap() == "0" {}
    never_ends.abort();
    assert!(never_ends.await.unwrap_err().is_cancelled());
    let next = tokio::time::timeout(Duration::from_secs(20), until_done(&store, "slow")).await;
    assert_eq!(next.expect("it waits for the sleeper"), Ran::Executed(receipt("slow")));
    bank.ensure(&["slow"]);
    assert_eq!(bank.server.psql(at_work).unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_owner_commits_nothing() {
    let bank = Bank::open();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1_750_000_000_000));
    let store =
        PostgresStore::builder(bank.server.url()).clock(clock.clone()).open().await.unwrap();
    let engine = Engine::new(store.clone());
    let takes_too_long = async |tx: Tx, context: Context| {
        let done = transfer(&tx, &context).await;
        clock.advance(Duration::from_secs(3600));
        let begin = Step::begin(&operation("slow"), Owner::new("other"), Token(1));
        let answer = store.apply(&begin).await.unwrap();
        assert!(matches!(answer, Answer::Claimed(_)), "{answer:?}");
        done
    };
    let ran = store.transactional(&engine, &operation("slow"), takes_too_long).await.unwrap();
    assert_eq!(ran, Ran::Superseded(None));
    bank.ensure::<&str>(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_the_callers_own() {
    let bank = Bank::open();
    let store = bank.store().await;
    let (mut client, connection) =
        tokio_postgres::connect(&bank.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let begin = Step::begin(&operation("own"), Owner::new("me"), Token(1));
    let Answer::Claimed(claimed) = store.apply(&begin).await.unwrap() else {
        panic!("it was new");
    };
    for commit in [false, true] {
        let mut tx = client.transaction().await.unwrap();
        let outcome = receipt("own");
        let stored = store.complete_within(&mut tx, &begin.id, claimed.fence, &outcome);
        assert_eq!(stored.await.unwrap().unwrap(), Completion::Stored);
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let completed = store.get(&begin.id).await.unwrap().unwrap().entry.expires_at().is_some();
        assert_eq!(completed, commit);
    }
    let mut tx = client.transaction().await.unwrap();
    let other = receipt("other");
    let late = store.complete_within(&mut tx, &begin.id, claimed.fence, &other);
    assert!(matches!(late.await.unwrap().unwrap(), Completion::Lost(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_processed_once_unless_it_was_rolled_back_or_forgotten() {
    let bank = Bank::open();
    let clock = ManualClock::starting_at(Timestamp::from_millis(1_750_000_000_000));
    let store =
        PostgresStore::builder(bank.server.url()).clock(clock.clone()).open().await.unwrap();
    let (mut client, connection) =
        tokio_postgres::connect(&bank.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let day = Duration::from_secs(24 * 3600);
    let steps = [
        (false, Duration::ZERO, Delivery::First),
        (true, Duration::ZERO, Delivery::First),
        (true, day - Duration::from_millis(1), Delivery::Repeated),
        (true, Duration::from_millis(1), Delivery::First),
        (true, Duration::ZERO, Delivery::Repeated),
    ];
    for (number, (commit, later, expected)) in steps.into_iter().enumerate() {
        clock.advance(later);
        let mut tx = client.transaction().await.unwrap();
        let seen = store.processed(&mut tx, "billing", "message-17", day).await.unwrap();
        assert_eq!(seen, expected, "step {number}");
        let other = store.processed(&mut tx, "shipping", "message-17", day).await.unwrap();
        assert_eq!(other, expected, "step {number}, another subscriber");
        if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    clock.advance(day);
    justonce_core::store::Maintenance::sweep(&store, 100).await.unwrap();
    assert_eq!(bank.server.psql("SELECT count(*) FROM justonce.processed").unwrap(), "0");
}

/// What one handler leaves in its session is not there for the next, whose caller is another.
#[tokio::test(flavor = "multi_thread")]
async fn no_handler_finds_what_another_left_in_its_session() {
    let bank = Bank::open();
    let store = PostgresStore::builder(bank.server.url()).transactions(1).open().await.unwrap();
    let engine = Engine::new(store.clone());
    let leaves = async |tx: Tx, _: Context| {
        tx.batch_execute(
            "SET app.tenant = 'ada'; SET search_path = nowhere; SET synchronous_commit = off;
             CREATE TEMP TABLE scratch AS SELECT 'the secret of ada' AS secret;
             SELECT pg_advisory_lock(7)",
        )
        .await?;
        Ok(Outcome::empty())
    };
    let ran = store.transactional(&engine, &operation("ada"), leaves).await.unwrap();
    assert_eq!(ran, Ran::Executed(Outcome::empty()));
    let looks = async |tx: Tx, _: Context| {
        let found = "SELECT format('%s|%s|%s|%s|%s', current_setting('app.tenant', true), \
             current_setting('search_path'), current_setting('synchronous_commit'), \
             to_regclass('pg_temp.scratch'), (SELECT count(*) FROM pg_locks \
             WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";
        let row = tx.query_one(found, &[]).await?;
        Ok(Outcome::bytes(row.get::<_, String>(0)))
    };
    let ran = store.transactional(&engine, &operation("bob"), looks).await.unwrap();
    let Ran::Executed(found) = ran else { panic!("{ran:?}") };
    assert_eq!(String::from_utf8_lossy(found.body().unwrap()), "|\"$user\", public|on||0");
}
