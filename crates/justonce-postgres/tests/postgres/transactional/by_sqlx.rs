//! The caller has a transaction of sqlx.

use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{Answer, Fence, Owner, Step, Token};
use justonce_postgres::PostgresStore;
use justonce_postgres::tx::{Completion, Delivery, fence_of, if_fence_holds};
use sqlx::{Connection, PgConnection, Postgres, Transaction};

use super::bank::{Bank, operation, receipt};

async fn connect(bank: &Bank) -> PgConnection {
    PgConnection::connect(&bank.server.url()).await.unwrap()
}

async fn claim(store: &PostgresStore, name: &str, token: u128) -> (Step, Fence) {
    let begin = Step::begin(&operation(name), Owner::new("me"), Token(token));
    let Answer::Claimed(claimed) = store.apply(&begin).await.unwrap() else {
        panic!("{name} was new");
    };
    (begin, claimed.fence)
}

/// Moves five cents, and writes down under which fence.
async fn transfer(tx: &mut Transaction<'_, Postgres>, name: &str, fence: Fence) {
    for (change, account) in [(-5_i64, "ada"), (5, "bob")] {
        let update = "UPDATE accounts SET cents = cents + $1 WHERE name = $2";
        let update = sqlx::query(update).bind(change).bind(account);
        let changed = update.execute(&mut **tx).await.unwrap().rows_affected();
        assert_eq!(if_fence_holds(changed), Ok(1));
    }
    let row = sqlx::query("INSERT INTO ledger VALUES ($1, $2)").bind(name).bind(fence_of(fence));
    row.execute(&mut **tx).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_outcome_are_committed_together_or_not_at_all() {
    let bank = Bank::open();
    let store = bank.store().await;
    let mut connection = connect(&bank).await;
    let (begin, fence) = claim(&store, "own", 1).await;
    for commit in [false, true] {
        let mut tx = connection.begin().await.unwrap();
        transfer(&mut tx, "own", fence).await;
        let stored = store.complete_within(&mut tx, &begin.id, fence, &receipt("own")).await;
        assert_eq!(stored.unwrap().unwrap(), Completion::Stored);
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        bank.ensure(if commit { &["own"] } else { &[] });
    }
    let again = store.apply(&begin).await.unwrap();
    assert_eq!(again.completed(), Some(&receipt("own")));

    // An owner that is too late hears so before it commits.
    let mut tx = connection.begin().await.unwrap();
    transfer(&mut tx, "late", fence).await;
    let late = store.complete_within(&mut tx, &begin.id, fence, &receipt("late")).await;
    assert!(matches!(late.unwrap().unwrap(), Completion::Lost(_)));
    tx.rollback().await.unwrap();
    bank.ensure(&["own"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_processed_once_unless_it_was_rolled_back() {
    let bank = Bank::open();
    let store = bank.store().await;
    let mut connection = connect(&bank).await;
    let day = Duration::from_secs(24 * 3600);
    let steps = [(false, Delivery::First), (true, Delivery::First), (true, Delivery::Repeated)];
    for (number, (commit, expected)) in steps.into_iter().enumerate() {
        let mut tx = connection.begin().await.unwrap();
        let seen = store.processed(&mut tx, "billing", "message-17", day).await.unwrap();
        assert_eq!(seen, expected, "step {number}");
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_driver_says_comes_back() {
    let bank = Bank::open();
    let store = bank.store().await;
    let mut connection = connect(&bank).await;
    let (begin, fence) = claim(&store, "own", 1).await;
    let mut tx = connection.begin().await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut *tx).await.unwrap_err();
    let error = store.complete_within(&mut tx, &begin.id, fence, &receipt("own")).await;
    let error = error.unwrap_err();
    let code = error.as_database_error().and_then(|error| error.code()).unwrap();
    assert_eq!(code, "25P02", "the transaction has failed: {error}");
}
