//! What is done in the background while the gateway runs.

use std::time::Duration;

use justonce::Engine;
use metrics::counter;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::metrics::EXPIRATIONS;

/// The pause when no retention has ended.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// The pause between two portions when there is more.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);
/// How many records one portion changes at most.
const SWEEP_PORTION: usize = 1000;
/// How often old samples of the metrics are let go.
const METRICS_EVERY: Duration = Duration::from_secs(5);

/// Ends retentions, in small portions, until told to stop.
pub(crate) async fn sweep(engine: Engine, stop: CancellationToken) {
    let expirations = counter!(EXPIRATIONS);
    loop {
        let pause = match engine.sweep(SWEEP_PORTION).await {
            Ok(report) => {
                expirations.increment(report.removed + report.buried);
                if report.more { SWEEP_PAUSE } else { SWEEP_EVERY }
            }
            // Retention is never urgent, and reads check it by themselves.
            Err(error) => {
                tracing::warn!(target: "justonce::store", %error, "sweeping failed");
                SWEEP_EVERY
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Keeps the metrics small.
pub(crate) async fn tidy_metrics(handle: PrometheusHandle, stop: CancellationToken) {
    loop {
        handle.run_upkeep();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(METRICS_EVERY) => {}
        }
    }
}
