//! `POST /sagas/{id}/retry`: a stuck saga is due again, for the next completer or caller.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::RecordId;
use justonce::saga::{Retried, SagaError, retry as retry_stuck};

use crate::admin::keys::{read, text};
use crate::admin::problem::Refusal;
use crate::admin::server::Watched;
use crate::admin::wire::{RetriedSaga, Retrying};

/// Makes a stuck saga due again. Nothing is executed here.
pub(crate) async fn retry(
    State(watched): State<Arc<Watched>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<RetriedSaga>, Refusal> {
    let said: Retrying = read(&body)?;
    let by = text("by", &said.by)?;
    let id = RecordId::parse(&name)
        .ok_or_else(|| Refusal::invalid("A retry names its record by all 64 digits."))?;
    match retry_stuck(&watched.engine, id, by).await {
        Ok(Retried::Due) => {
            tracing::info!(target: "justonce::saga", %id, by, "a stuck saga is due again");
            Ok(Json(RetriedSaga { id: id.to_string(), by: by.to_owned() }))
        }
        Ok(Retried::NotStuck(state)) => Err(Refusal::not_stuck(state)),
        Ok(Retried::Busy) => Err(Refusal::driven()),
        Ok(Retried::None) => Err(Refusal::no_saga()),
        Err(SagaError::Run(justonce::RunError::Store(error))) => Err(error.into()),
        Err(error) => Err(Refusal::overloaded(&error)),
    }
}
