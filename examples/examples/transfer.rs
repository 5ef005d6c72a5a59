//! Money transfers over HTTP, each exactly once: the bookings and the reply are committed in one
//! transaction of PostgreSQL.
//!
//! An impatient client sends every transfer many times, at once and again later. The accounts show
//! what was really moved.
//!
//! ```text
//! cargo run --package justonce-examples --example transfer
//! DATABASE_URL=postgres://me@localhost/shop cargo run … --example transfer
//! ```
//!
//! Without the variable it starts a private PostgreSQL of its own.

use std::error::Error;
use std::process::ExitCode;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use justonce::{
    Classify, Engine, Fingerprint, HandlerError, Key, OnLapsed, Operation, Outcome, Policy,
    PolicyError, Ran, Scope,
};
use justonce_examples::Database;
use justonce_postgres::PostgresStore;
use justonce_postgres::tx::Tx;
use tower::ServiceExt;

/// How many transfers there are.
const TRANSFERS: i64 = 40;
/// How often each is sent at once.
const DUPLICATES: usize = 8;
/// What each account has at first.
const CENTS: i64 = 100_000;

type AnyError = Box<dyn Error + Send + Sync>;

/// What the handlers share.
#[derive(Clone)]
struct Bank {
    engine: Engine,
    store: PostgresStore,
}

#[tokio::main]
async fn main() -> Result<ExitCode, AnyError> {
    // Kept to the end: a private server ends with it.
    let database = Database::new()?;
    let store = PostgresStore::builder(database.url()).schema("justonce_example").open().await?;
    let bank = Bank { engine: Engine::new(store.clone()), store };
    prepare(&bank).await?;

    let app = Router::new().route("/transfers", post(transfer)).with_state(bank.clone());
    // A real program would go on with `axum::serve`; here the requests come from within.
    println!("{TRANSFERS} transfers, each sent {DUPLICATES} times at once, and all of it twice:");
    for round in ["first", "again"] {
        let created = send_all(&app).await?;
        println!("  {round}: {created} replies with the receipt");
    }
    let (moved, bookings) = moved(&bank).await?;
    println!("Moved {moved} cents in {bookings} bookings.");
    let expected: i64 = (0..TRANSFERS).map(|number| 100 + number).sum();
    let right = moved == expected && bookings == TRANSFERS;
    println!("{}", if right { "Every transfer was made once." } else { "THIS IS WRONG." });
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `POST /transfers` with an `Idempotency-Key` and the cents as the body.
async fn transfer(State(bank): State<Bank>, headers: HeaderMap, body: Bytes) -> Response {
    let operation = match asked(&headers, &body) {
        Ok(operation) => operation,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let book = async move |tx: Tx, _| {
        let cents = std::str::from_utf8(&body).permanent()?;
        let cents: i64 = cents.parse().permanent()?;
        // All of this, and the receipt, is committed together or not at all.
        let taken = tx
            .execute(
                "UPDATE example_accounts SET cents = cents - $1 WHERE name = 'ada' AND cents >= $1",
                &[&cents],
            )
            .await?;
        if taken == 0 {
            return Err(HandlerError::permanent("not enough money"));
        }
        tx.execute("UPDATE example_accounts SET cents = cents + $1 WHERE name = 'bob'", &[&cents])
            .await?;
        tx.execute("INSERT INTO example_bookings (cents) VALUES ($1)", &[&cents]).await?;
        Ok(Outcome::bytes(format!("moved {cents} cents")))
    };
    match bank.store.transactional(&bank.engine, &operation, book).await {
        Ok(Ran::Executed(receipt) | Ran::Replayed(receipt) | Ran::Superseded(Some(receipt))) => {
            (StatusCode::CREATED, receipt.body().unwrap_or_default().to_vec()).into_response()
        }
        Ok(Ran::Failed(why) | Ran::FailedBefore(why)) => {
            (StatusCode::CONFLICT, why.body().unwrap_or_default().to_vec()).into_response()
        }
        Ok(Ran::Mismatch) => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        // Nothing happened, or it is still happening: the client may ask again.
        Ok(_) | Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn asked(headers: &HeaderMap, body: &[u8]) -> Result<Operation, AnyError> {
    let key = headers.get("idempotency-key").ok_or("an Idempotency-Key is needed")?;
    let scope = Scope::builder().operation("transfer").build()?;
    let fingerprint = Fingerprint::of(&scope, body);
    let operation = Operation::new(scope, Key::client(key.to_str()?)?, fingerprint);
    Ok(operation.with_policy(again()?))
}

/// All effects are in the transaction: what was not committed had none, so it may run again.
fn again() -> Result<Policy, PolicyError> {
    Policy::builder().on_lapsed(OnLapsed::Rerun).build()
}

/// Two accounts, as a run before this one may have left them.
async fn prepare(bank: &Bank) -> Result<(), AnyError> {
    let scope = Scope::builder().operation("prepare").build()?;
    let run = std::process::id();
    let operation = Operation::without_fingerprint(scope, Key::client(format!("run-{run}"))?)
        .with_policy(again()?);
    let make = async |tx: Tx, _| {
        tx.batch_execute(&format!(
            "DROP TABLE IF EXISTS example_accounts, example_bookings;
             CREATE TABLE example_accounts (name text PRIMARY KEY, cents bigint NOT NULL);
             CREATE TABLE example_bookings (cents bigint NOT NULL);
             INSERT INTO example_accounts VALUES ('ada', {CENTS}), ('bob', {CENTS})"
        ))
        .await?;
        Ok(Outcome::empty())
    };
    bank.store.transactional(&bank.engine, &operation, make).await?;
    Ok(())
}

/// Sends every transfer many times at once, and counts the receipts.
async fn send_all(app: &Router) -> Result<usize, AnyError> {
    let run = std::process::id();
    let mut tasks = Vec::new();
    for number in 0..TRANSFERS {
        for _ in 0..DUPLICATES {
            let request = Request::post("/transfers")
                .header("idempotency-key", format!("transfer-{run}-{number}"))
                .body(Body::from((100 + number).to_string()))?;
            tasks.push(tokio::spawn(app.clone().oneshot(request)));
        }
    }
    let mut created = 0;
    for task in tasks {
        created += usize::from(task.await??.status() == StatusCode::CREATED);
    }
    Ok(created)
}

/// How much bob has got, and in how many bookings.
async fn moved(bank: &Bank) -> Result<(i64, i64), AnyError> {
    let scope = Scope::builder().operation("count").build()?;
    let run = std::process::id();
    let operation = Operation::without_fingerprint(scope, Key::client(format!("run-{run}"))?)
        .with_policy(again()?);
    let count = async |tx: Tx, _| {
        let row = tx
            .query_one(
                "SELECT cents, (SELECT count(*) FROM example_bookings) FROM example_accounts \
                 WHERE name = 'bob'",
                &[],
            )
            .await?;
        let (cents, bookings): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Outcome::bytes(format!("{} {bookings}", cents - CENTS)))
    };
    let ran = bank.store.transactional(&bank.engine, &operation, count).await?;
    let text = String::from_utf8_lossy(ran.outcome().and_then(Outcome::body).unwrap_or_default())
        .into_owned();
    let (cents, bookings) = text.split_once(' ').ok_or("no count")?;
    Ok((cents.parse()?, bookings.parse()?))
}
