//! `POST /callbacks/{id}`: the service behind the gateway resolves an unknown operation.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::{Resolution, Resolve, Resolver, Why};
use justonce_admin_api::{CallbackRequest, CallbackResult, ResolveResponse};

use super::keys::{NO_OUTCOME, OUTCOME_MISSING, outcome, resolve};
use super::problem::Refusal;
use super::request::{body, text};
use super::server::AdminState;

/// The reason that is kept if the service gives none.
const DEFAULT_WHY: &str = "reported by the service";

/// Resolves an operation. The service's token was checked before.
pub(crate) async fn callback(
    State(admin): State<Arc<AdminState>>,
    Path(id): Path<String>,
    json: Bytes,
) -> Result<Json<ResolveResponse>, Refusal> {
    let request: CallbackRequest = body(&json)?;
    let resolution = match (request.result, &request.outcome) {
        (CallbackResult::Happened, Some(given)) => Resolution::Complete(outcome(given)?),
        (CallbackResult::DidNotHappen, None) => Resolution::Release,
        (CallbackResult::Happened, None) => return Err(Refusal::invalid(OUTCOME_MISSING)),
        (CallbackResult::DidNotHappen, Some(_)) => return Err(Refusal::invalid(NO_OUTCOME)),
    };
    let by = Resolver::callback(text("source", &request.source)?);
    let why = Why::new(text("why", request.why.as_deref().unwrap_or(DEFAULT_WHY))?);
    resolve(&admin.engine, &id, request.fence, Resolve { resolution, by, why }).await.map(Json)
}
