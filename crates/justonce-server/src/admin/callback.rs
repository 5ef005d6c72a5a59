//! `POST /callbacks/{id}`: the downstream tells by itself what became of an operation.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::{Resolution, Resolve, Resolver, Why};

use super::keys::{Resolved, outcome, read, resolve, text};
use super::problem::Refusal;
use super::server::Watched;
use super::wire::{CallbackResult, CalledBack};

/// What is kept as the reason if the downstream gives none.
const TOLD: &str = "the service told so";

/// Takes the word of the downstream, whose token was checked.
pub(crate) async fn callback(
    State(watched): State<Arc<Watched>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Resolved>, Refusal> {
    let said: CalledBack = read(&body)?;
    let resolution = match (said.result, &said.outcome) {
        (CallbackResult::Happened, Some(given)) => Resolution::Complete(outcome(given)?),
        (CallbackResult::DidNotHappen, None) => Resolution::Release,
        (CallbackResult::Happened, None) => {
            return Err(Refusal::invalid("`outcome` is missing: what the client gets to hear."));
        }
        (CallbackResult::DidNotHappen, Some(_)) => {
            return Err(Refusal::invalid("What did not happen has no `outcome`."));
        }
    };
    let why = said.why.as_deref().unwrap_or(TOLD);
    let said_by = Resolver::callback(text("source", &said.source)?);
    let told = Resolve { resolution, by: said_by, why: Why::new(text("why", why)?) };
    resolve(&watched.engine, &name, said.fence, told).await.map(Json)
}
