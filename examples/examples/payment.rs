//! Payments that are charged once, on the embedded store.
//!
//! An impatient client sends every payment many times, at once and again later. The ledger shows
//! what was really charged.
//!
//! ```text
//! cargo run --release --package justonce-examples --example payment [DIRECTORY]
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use justonce::{
    EmbeddedStore, Engine, Fingerprint, HandlerError, Key, OnLapsed, Operation, Outcome, Policy,
    Ran, Scope,
};

/// How many payments there are.
const PAYMENTS: u32 = 100;
/// How often each is sent at once.
const DUPLICATES: u32 = 20;

/// What was charged: payment and amount, one row a charge.
type Ledger = Arc<Mutex<Vec<(u32, u32)>>>;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let temporary = tempfile::tempdir()?;
    let directory = given.unwrap_or_else(|| temporary.path().join("justonce-data"));
    let ledger = Ledger::default();

    println!("{PAYMENTS} payments, each sent {DUPLICATES} times at once:");
    let engine = Engine::new(EmbeddedStore::open(&directory)?);
    let answers = send_all(&engine, &ledger).await?;
    show(&answers);

    println!("\nThe process restarts; every payment is sent again:");
    drop(engine);
    let engine = Engine::new(EmbeddedStore::open(&directory)?);
    let again = send_all(&engine, &ledger).await?;
    show(&again);

    println!("\nThe key of payment 1 is used for another amount:");
    let mismatch = pay(&engine, &ledger, 1, 999_999).await?;
    println!("  {}", name(&mismatch));

    let charges = ledger.lock().unwrap_or_else(PoisonError::into_inner).len();
    println!("\nLedger: {charges} charges for {PAYMENTS} payments.");
    let first_time = answers.get("executed here").copied().unwrap_or(0);
    let right = mismatch == Ran::Mismatch && charges == usize::try_from(first_time)?;
    let right =
        right && charges <= usize::try_from(PAYMENTS)? && !again.contains_key("executed here");
    println!("{}", if right { "Every payment was charged once." } else { "THIS IS WRONG." });
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends every payment many times at once, and counts the answers.
async fn send_all(
    engine: &Engine,
    ledger: &Ledger,
) -> Result<BTreeMap<&'static str, u32>, Box<dyn Error + Send + Sync>> {
    let mut tasks = Vec::new();
    for payment in 0..PAYMENTS {
        for _ in 0..DUPLICATES {
            let (engine, ledger) = (engine.clone(), Arc::clone(ledger));
            tasks.push(tokio::spawn(
                async move { pay(&engine, &ledger, payment, 100 + payment).await },
            ));
        }
    }
    let mut answers = BTreeMap::new();
    for task in tasks {
        *answers.entry(name(&task.await??)).or_default() += 1;
    }
    Ok(answers)
}

/// One request: charge this payment, once.
async fn pay(
    engine: &Engine,
    ledger: &Ledger,
    payment: u32,
    cents: u32,
) -> Result<Ran, Box<dyn Error + Send + Sync>> {
    let scope = Scope::builder().tenant("shop").operation("charge").build()?;
    let request = format!(r#"{{"payment": {payment}, "cents": {cents}}}"#);
    let fingerprint = Fingerprint::of_json(&scope, request.as_bytes());
    // A charge must never run twice: when nobody knows whether it happened, it is held.
    let policy = Policy::builder().on_lapsed(OnLapsed::Hold).build()?;
    let key = Key::client(format!("payment-{payment}"))?;
    let operation = Operation::new(scope, key, fingerprint).with_policy(policy);
    let charge = async |_| {
        let mut ledger = ledger.lock().map_err(|_| HandlerError::NotExecuted)?;
        ledger.push((payment, cents));
        Ok(Outcome::bytes(format!("receipt for payment {payment}")))
    };
    Ok(engine.run(&operation, charge).await?)
}

fn name(ran: &Ran) -> &'static str {
    match ran {
        Ran::Executed(_) => "executed here",
        Ran::Replayed(_) => "replayed",
        Ran::Mismatch => "refused: the key was used for something else",
        Ran::Unknown(_) => "unknown",
        Ran::Busy(_) => "busy",
        _ => "other",
    }
}

fn show(answers: &BTreeMap<&'static str, u32>) {
    for (name, count) in answers {
        println!("  {count:>5}  {name}");
    }
}
