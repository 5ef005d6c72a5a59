//! Metrics for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use justonce::store::{HealthWarning, ListQuery, MAX_PAGE};
use justonce::{Clock, Engine, StateName, StoreResult, SystemClock, Timestamp};
use metrics::gauge;

use super::server::Watched;

/// How many pages of unknown operations are looked at: with more of them waiting, the number alone
/// says what must be said.
const MAX_LOOKS: usize = 8;

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
    unknown(&watched.engine).await;
    health(&watched.engine).await;
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], watched.metrics.render()).into_response()
}

/// How many operations wait for a resolution, and for how long the oldest does. Only a display: the
/// age is by this machine's clock, and nothing is decided by it.
async fn unknown(engine: &Engine) {
    match waiting(engine).await {
        Ok((count, oldest)) => {
            let age = oldest.map(|since| SystemClock::new().now().since(since));
            gauge!("idempotency_unknown_waiting").set(count as f64);
            gauge!("idempotency_unknown_oldest_seconds").set(age.unwrap_or_default().as_secs_f64());
        }
        Err(error) => tracing::warn!(target: "justonce::store", %error, "no unknown operations"),
    }
}

/// What operators should look at in the store although it works. The log says it in words.
async fn health(engine: &Engine) {
    match engine.store().health().await {
        Ok(health) => {
            gauge!("idempotency_store_damaged_records").set(health.damaged.count as f64);
            for HealthWarning { name, .. } in health.warnings {
                gauge!("idempotency_store_warning", "name" => name).set(1.0);
            }
        }
        Err(error) => tracing::warn!(target: "justonce::store", %error, "no health of the store"),
    }
}

/// How many operations are unknown, and since when the oldest is.
async fn waiting(engine: &Engine) -> StoreResult<(usize, Option<Timestamp>)> {
    let state = Some(StateName::Unknown);
    let mut query = ListQuery { state, limit: MAX_PAGE, ..ListQuery::default() };
    let (mut count, mut oldest) = (0, None);
    for _ in 0..MAX_LOOKS {
        let page = engine.store().list(&query).await?;
        count += page.records.len();
        let first = page.records.iter().map(|record| record.changed_at).min();
        oldest = [oldest, first].into_iter().flatten().min();
        query.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    Ok((count, oldest))
}
