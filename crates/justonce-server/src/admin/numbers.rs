//! Metrics for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use metrics::gauge;

use super::server::Watched;

/// Everything that is counted. Sizes of the store are looked up when somebody asks.
pub(crate) async fn metrics(State(watched): State<Arc<Watched>>) -> Response {
    let load = watched.engine.load();
    gauge!("idempotency_executing").set(load.executing as f64);
    match watched.engine.store().stats().await {
        Ok(stats) => {
            for (state, size) in stats.by_state() {
                let name = state.as_str();
                gauge!("idempotency_store_records", "state" => name).set(size.count as f64);
                gauge!("idempotency_store_bytes", "state" => name).set(size.bytes as f64);
            }
        }
        Err(error) => tracing::warn!(target: "justonce::store", %error, "no sizes of the store"),
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], watched.metrics.render()).into_response()
}
