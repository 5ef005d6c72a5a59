//! Whether the process lives, and whether it can take requests.

use std::sync::Arc;

use axum::extract::State;
use http::{HeaderMap, StatusCode, Uri};
use justonce_admin_api::Readiness;

use super::server::AdminState;

/// The process lives.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// The gateway can take requests: its store can be written, and it is not stopping. No token is
/// needed; without one, the reason is not shown.
pub(crate) async fn readyz(
    State(admin): State<Arc<AdminState>>,
    uri: Uri,
    headers: HeaderMap,
) -> (StatusCode, String) {
    let Readiness { is_ready, detail } = readiness(&admin, &uri, &headers).await;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, detail + "\n")
}

async fn readiness(admin: &AdminState, uri: &Uri, headers: &HeaderMap) -> Readiness {
    let not_ready = |detail: String| Readiness { is_ready: false, detail };
    if admin.stopping.is_cancelled() {
        return not_ready("stopping".to_owned());
    }
    match admin.engine.store().ready().await {
        Ok(()) => Readiness { is_ready: true, detail: ready(admin, uri, headers) },
        Err(_) if !admin.is_operator(uri, headers) => not_ready("not ready".to_owned()),
        Err(error) => not_ready(format!("the store: {error}")),
    }
}

/// What operators are told of a gateway that is ready. It stays ready while its upstreams are away:
/// duplicates are still answered.
fn ready(admin: &AdminState, uri: &Uri, headers: &HeaderMap) -> String {
    let upstreams = admin.upstreams.now();
    let unhealthy = upstreams.unhealthy();
    if unhealthy.is_empty() || !admin.is_operator(uri, headers) {
        return "ready".to_owned();
    }
    format!("ready; no address is healthy of: {}", unhealthy.join(", "))
}
