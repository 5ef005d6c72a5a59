//! A service with a ledger: it does, undoes and refuses, and recognises repetitions by their key.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use clap::Args;
use http::{HeaderMap, StatusCode};
use justonce::http::{Idempotency, KeyPresence, Rule, WhenBusy};
use justonce::{EmbeddedStore, Engine};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::call::KEY;
use crate::ledger::Ledger;
use crate::order::Order;
use crate::serve::serve;
use crate::trade::Trade;

/// The ledger's file in a service's directory.
pub const LEDGER: &str = "ledger.jsonl";
/// How long a repetition waits for the first to end.
const WAIT: Duration = Duration::from_secs(10);

/// What may go wrong with a service, on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct Faults {
    /// The first answer under each key is lost, after the work was done
    #[arg(long)]
    pub loses_replies: bool,
    /// What it does is done, but never answered; what it undoes is
    #[arg(long)]
    pub never_answers: bool,
    /// It has no idempotency layer
    #[arg(long)]
    pub forgets_keys: bool,
}

/// What is to be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The order.
    pub order: String,
    /// The key of what is to be undone.
    pub undoes: String,
}

/// What a service says about what it was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// It is done, and this is its entry in the ledger.
    Entry(u64),
    /// It is not, and never will be, for this reason.
    Refused(String),
}

#[derive(Clone)]
struct Service {
    trade: Trade,
    ledger: Arc<Mutex<Ledger>>,
}

/// Runs a service until the process ends.
///
/// # Errors
///
/// If its directory cannot be used.
pub async fn run(
    trade: Trade,
    listener: TcpListener,
    directory: &Path,
    faults: Faults,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let ledger = Arc::new(Mutex::new(Ledger::open(&directory.join(LEDGER))?));
    let app = Router::new()
        .route(&format!("/{}", trade.does()), post(act))
        .route(&format!("/{}", trade.undoes()), post(undo))
        .with_state(Service { trade, ledger });
    let app = if faults.forgets_keys { app } else { app.layer(layer(directory)?) };
    let seen = Mutex::new(HashSet::new());
    let loses = move |path: &str, key: &str| {
        let first =
            || seen.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{path} {key}"));
        (faults.never_answers && path == trade.does()) || (faults.loses_replies && first())
    };
    Ok(serve(listener, app, loses).await?)
}

/// Each request needs a key. A repetition gets the same answer again, and waits for it if need be.
/// A refusal is an answer like any other: it stays one.
fn layer(directory: &Path) -> anyhow::Result<Idempotency> {
    let engine = Engine::new(EmbeddedStore::open(directory.join("justonce-data"))?);
    let rule = Rule::default().key_presence(KeyPresence::Required).when_busy(WhenBusy::Wait(WAIT));
    Ok(Idempotency::builder(engine).default_rule(rule).build())
}

async fn act(
    State(service): State<Service>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Response {
    if let Some(why) = order.refusal_by(service.trade) {
        return refused(why);
    }
    let key = key(&headers);
    match service.write(move |ledger| ledger.book(&order.order, &key)).await {
        Ok(Some(entry)) => (StatusCode::CREATED, Json(Said::Entry(entry))).into_response(),
        Ok(None) => refused("it was undone before it came"),
        Err(error) => unwritten(&error),
    }
}

async fn undo(
    State(service): State<Service>,
    headers: HeaderMap,
    Json(asked): Json<Undo>,
) -> Response {
    let key = key(&headers);
    match service.write(move |ledger| ledger.undo(&asked.order, &key, &asked.undoes)).await {
        Ok(entry) => (StatusCode::OK, Json(Said::Entry(entry))).into_response(),
        Err(error) => unwritten(&error),
    }
}

impl Service {
    /// Writes to the ledger, on a thread that may wait for the disk.
    async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut Ledger) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let ledger = Arc::clone(&self.ledger);
        let write = move || write(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(write).await?
    }
}

fn key(headers: &HeaderMap) -> String {
    headers.get(KEY).and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned()
}

fn refused(why: &str) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, Json(Said::Refused(why.to_owned()))).into_response()
}

/// Nobody knows how much of the line is on disk: to the layer, 500 says so.
fn unwritten(error: &io::Error) -> Response {
    eprintln!("the ledger cannot be written: {error}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
