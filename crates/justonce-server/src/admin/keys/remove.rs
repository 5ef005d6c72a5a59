//! `POST /keys/{id}/expire` and `erase`: an operator removes an outcome before its retention ends.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use justonce::Fence;
use justonce::engine::Settlement;
use justonce_admin_api::{Removal, RemoveRequest, RemoveResponse};

use crate::admin::problem::Refusal;
use crate::admin::request::{body, text, whole_id};
use crate::admin::server::AdminState;

/// Ends the retention, or removes everything, also a tombstone.
pub(crate) async fn remove(
    State(admin): State<Arc<AdminState>>,
    Path(id): Path<String>,
    json: Bytes,
    how: Removal,
) -> Result<Json<RemoveResponse>, Refusal> {
    let request: RemoveRequest = body(&json)?;
    let (by, why) = (text("by", &request.by)?, text("why", &request.why)?);
    let id = whole_id(&id)?;
    let fence = Fence::new(request.fence);
    let (settled, result) = match how {
        Removal::Expire => (admin.engine.expire(id, fence).await?, "expired"),
        Removal::Erase => (admin.engine.erase(id, fence).await?, "erased"),
    };
    let state = admin.engine.inspect(id).await?.map(|looked| looked.state());
    if let Settlement::Lost(lost) = settled {
        return Err(Refusal::lost(lost, state));
    }
    // The timeline may be gone too: only the log says who did it.
    tracing::info!(target: "justonce::admin", %id, by, why, result, "given up");
    Ok(Json(RemoveResponse {
        id: id.to_string(),
        state: state.map_or("absent", |state| state.as_str()).to_owned(),
        result: result.to_owned(),
        by: by.to_owned(),
    }))
}
