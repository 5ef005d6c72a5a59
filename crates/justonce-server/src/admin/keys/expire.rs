//! `POST /keys/{id}/expire` and `erase`: an operator gives an outcome up before its retention is
//! over.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::engine::Settlement;
use justonce::{Fence, RecordId, StoreResult};

use super::resolve::{read, text};
use crate::admin::problem::Refusal;
use crate::admin::server::Watched;
use crate::admin::wire::{GivenUp, GivingUp};

/// Ends the retention: what remains is what time would have left.
pub(crate) async fn expire(
    watched: State<Arc<Watched>>,
    name: Path<String>,
    body: Bytes,
) -> Result<Json<GivenUp>, Refusal> {
    let step = async |id, fence| watched.engine.expire(id, fence).await;
    give_up(&watched, &name, &body, "expired", step).await
}

/// Removes everything, also a tombstone.
pub(crate) async fn erase(
    watched: State<Arc<Watched>>,
    name: Path<String>,
    body: Bytes,
) -> Result<Json<GivenUp>, Refusal> {
    let step = async |id, fence| watched.engine.erase(id, fence).await;
    give_up(&watched, &name, &body, "erased", step).await
}

async fn give_up(
    watched: &Watched,
    name: &str,
    body: &[u8],
    result: &'static str,
    step: impl AsyncFnOnce(RecordId, Fence) -> StoreResult<Settlement>,
) -> Result<Json<GivenUp>, Refusal> {
    let said: GivingUp = read(body)?;
    let (by, why) = (text("by", &said.by)?, text("why", &said.why)?);
    let id = RecordId::parse(name).ok_or_else(|| Refusal::invalid(WHOLE_NAME))?;
    let settled = step(id, Fence::new(said.fence)).await?;
    let looked = watched.engine.look(id).await?;
    let state = looked.map(|looked| looked.state());
    if let Settlement::Lost(lost) = settled {
        return Err(Refusal::lost(lost, state));
    }
    // Nothing may be left that could say who did it.
    tracing::info!(target: "justonce::admin", %id, by, why, result, "given up");
    Ok(Json(GivenUp {
        id: id.to_string(),
        state: state.map_or("absent", |state| state.as_str()).to_owned(),
        result: result.to_owned(),
        by: by.to_owned(),
    }))
}

const WHOLE_NAME: &str = "What is expired or erased is named by all 64 digits.";
