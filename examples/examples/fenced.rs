//! The fence guards a table of your own: an owner whose claim was taken over comes with an old
//! fence, and its update changes no row, how late it may come.
//!
//! ```text
//! cargo run --package justonce-examples --example fenced
//! DATABASE_URL=postgres://me@localhost/shop cargo run … --example fenced
//! ```
//!
//! Without the variable it starts a private PostgreSQL of its own.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use justonce::engine::{Begun, Settlement};
use justonce::{Engine, Fence, HeldClaim, Key, OnLapsed, Operation, Outcome, Policy, Scope};
use justonce_examples::Database;
use justonce_postgres::PostgresStore;
use justonce_postgres::tx::{Tx, fence_of, if_fence_holds};

type AnyError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<ExitCode, AnyError> {
    // Kept to the end: a private server ends with it.
    let database = Database::new()?;
    let store = PostgresStore::builder(database.url()).schema("justonce_example").open().await?;
    let engine = Engine::new(store.clone());
    run_sql(&store, &engine, "prepare", |tx| async move {
        tx.batch_execute(
            "DROP TABLE IF EXISTS example_parcels;
             CREATE TABLE example_parcels (
                 name text PRIMARY KEY, state text NOT NULL, fence bigint NOT NULL);
             INSERT INTO example_parcels VALUES ('parcel-1', 'packed', 0)",
        )
        .await?;
        Ok(0)
    })
    .await?;

    // One worker claims the shipping of a parcel, and is paused for too long.
    let policy =
        Policy::builder().on_lapsed(OnLapsed::Rerun).lease(Duration::from_millis(50)).build()?;
    let key = Key::client(format!("ship-{}", std::process::id()))?;
    let operation = Operation::without_fingerprint(Scope::global(), key).with_policy(policy);
    let slow = claim(&Engine::new(store.clone()), &operation).await?;
    let old = slow.fence();
    // A process that stands still renews nothing.
    drop(slow);

    // Another one takes over and does it.
    let mut quick = claim(&engine, &operation).await?;
    let new = quick.fence();
    let by_new = ship(&store, &engine, "quick", new).await?;
    let stored = quick.complete(Outcome::bytes("shipped by the quick one")).await?;
    println!("The new owner, fence {new}: {by_new} row changed.");

    // The first one wakes up and knows nothing of that.
    let by_old = ship(&store, &engine, "slow", old).await?;
    println!("The old owner, fence {old}: {by_old} rows changed.");
    println!("Checked: {:?}", if_fence_holds(by_old));

    let right = (by_new, by_old, stored) == (1, 0, Settlement::Stored) && old < new;
    println!("{}", if right { "The stale owner was kept out." } else { "THIS IS WRONG." });
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn claim(engine: &Engine, operation: &Operation) -> Result<HeldClaim, AnyError> {
    match engine.begin_or_wait(operation).await? {
        Begun::Claimed(claim) => Ok(claim),
        Begun::Existing(existing) => Err(format!("no claim: {existing:?}").into()),
    }
}

/// Writes under a fence, and says how many rows that changed.
async fn ship(
    store: &PostgresStore,
    engine: &Engine,
    who: &'static str,
    fence: Fence,
) -> Result<u64, AnyError> {
    run_sql(store, engine, who, move |tx| async move {
        let fence = fence_of(fence);
        Ok(tx
            .execute(
                "UPDATE example_parcels SET state = $1, fence = $2 \
                 WHERE name = 'parcel-1' AND fence <= $2",
                &[&format!("shipped by the {who} one"), &fence],
            )
            .await?)
    })
    .await
}

/// Some statements in a transaction of their own.
async fn run_sql<F>(
    store: &PostgresStore,
    engine: &Engine,
    what: &str,
    statements: impl FnOnce(Tx) -> F,
) -> Result<u64, AnyError>
where
    F: Future<Output = Result<u64, justonce::HandlerError>>,
{
    let key = Key::client(format!("{what}-{}", std::process::id()))?;
    // What was not committed had no effect, so it may run again.
    let policy = Policy::builder().on_lapsed(OnLapsed::Rerun).build()?;
    let operation = Operation::without_fingerprint(Scope::builder().operation("sql").build()?, key)
        .with_policy(policy);
    let run = async |tx, _| Ok(Outcome::bytes(statements(tx).await?.to_string()));
    let ran = store.transactional(engine, &operation, run).await?;
    let text = ran.outcome().and_then(Outcome::body).unwrap_or_default();
    Ok(std::str::from_utf8(text)?.parse()?)
}
