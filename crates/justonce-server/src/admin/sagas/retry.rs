//! `POST /sagas/{id}/retry`: a stuck saga is due again, for the next completer or caller.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::RunError;
use justonce::saga::{Retried, SagaError, retry as retry_stuck};
use justonce_admin_api::{RetryRequest, RetryResponse};

use crate::admin::problem::Refusal;
use crate::admin::request::{body, text, whole_id};
use crate::admin::server::AdminState;

/// Makes a stuck saga due again. Nothing is executed here.
pub(crate) async fn retry(
    State(admin): State<Arc<AdminState>>,
    Path(id): Path<String>,
    json: Bytes,
) -> Result<Json<RetryResponse>, Refusal> {
    let request: RetryRequest = body(&json)?;
    let by = text("by", &request.by)?;
    let id = whole_id(&id)?;
    match retry_stuck(&admin.engine, id, by).await {
        Ok(Retried::Due) => {
            tracing::info!(target: "justonce::saga", %id, by, "a stuck saga is due again");
            Ok(Json(RetryResponse { id: id.to_string(), by: by.to_owned() }))
        }
        Ok(Retried::NotStuck(state)) => Err(Refusal::not_stuck(state)),
        Ok(Retried::Busy) => Err(Refusal::driven()),
        Ok(Retried::None) => Err(Refusal::no_saga()),
        Err(SagaError::Run(RunError::Store(error))) => Err(error.into()),
        Err(error) => Err(Refusal::overloaded(&error)),
    }
}
