//! Whether the gateway lives, and whether it should get work.

use std::sync::Arc;

use axum::extract::State;
use http::{HeaderMap, StatusCode, Uri};

use super::server::Watched;

/// The process lives.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// The gateway can take requests: its store can be written, and it is not about to stop. Anybody
/// may ask; what is wrong is told to those who may see everything else.
pub(crate) async fn readyz(
    State(watched): State<Arc<Watched>>,
    uri: Uri,
    headers: HeaderMap,
) -> (StatusCode, String) {
    if watched.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".into());
    }
    match watched.engine.store().ready().await {
        Ok(()) => (StatusCode::OK, "ready\n".into()),
        Err(_) if !watched.may_see(&uri, &headers) => {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n".into())
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("the store: {error}\n")),
    }
}
