//! `POST /keys/{id}/complete`, `fail` and `release`: an operator resolves an unknown operation.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::engine::Settlement;
use justonce::{Engine, Fence, Resolution, Resolve, Resolver, Why};
use justonce_admin_api::{self as api, ResolveRequest, ResolveResponse};

use super::outcome::outcome;
use crate::admin::problem::Refusal;
use crate::admin::request::{body, text, whole_id};
use crate::admin::server::AdminState;
use crate::resolutions;

/// Resolves an operation as an operator says.
pub(crate) async fn by_operator(
    State(admin): State<Arc<AdminState>>,
    Path(id): Path<String>,
    json: Bytes,
    how: api::Resolution,
) -> Result<Json<ResolveResponse>, Refusal> {
    let request: ResolveRequest = body(&json)?;
    let given = request.outcome.as_ref().map(outcome).transpose()?;
    let resolution = match (how, given) {
        (api::Resolution::Complete, Some(outcome)) => Resolution::Complete(outcome),
        (api::Resolution::Fail, Some(outcome)) => Resolution::Fail(outcome),
        (api::Resolution::Release, None) => Resolution::Release,
        (api::Resolution::Release, Some(_)) => return Err(Refusal::invalid(NO_OUTCOME)),
        (_, None) => return Err(Refusal::invalid(OUTCOME_MISSING)),
    };
    let by = Resolver::operator(text("by", &request.by)?);
    let why = Why::new(text("why", &request.why)?);
    resolve(&admin.engine, &id, request.fence, Resolve { resolution, by, why }).await.map(Json)
}

/// Resolves a record. A resolution that changes nothing is refused with the reason.
pub(crate) async fn resolve(
    engine: &Engine,
    id: &str,
    fence: u64,
    resolve: Resolve,
) -> Result<ResolveResponse, Refusal> {
    let id = whole_id(id)?;
    let (by, how) = (resolve.by.clone(), resolve.resolution.how());
    let settled = engine.resolve(id, Fence::new(fence), resolve).await?;
    match settled {
        Settlement::Stored => resolutions::taken(id, &by, how),
        Settlement::Lost(_) => resolutions::lost(&by),
    }
    let state = engine.inspect(id).await?.map(|looked| looked.state());
    if let Settlement::Lost(lost) = settled {
        return Err(Refusal::lost(lost, state));
    }
    Ok(ResolveResponse {
        id: id.to_string(),
        state: state.map_or("absent", |state| state.as_str()).to_owned(),
        resolved: how.as_str().to_owned(),
        by: by.name().to_owned(),
    })
}

pub(crate) const OUTCOME_MISSING: &str = "`outcome` is missing: the response for the client.";
pub(crate) const NO_OUTCOME: &str = "What did not happen has no `outcome`.";
