//! What is done in the background while the gateway runs.

use std::convert::Infallible;
use std::time::Duration;

use justonce::Engine;
use justonce::engine::{NotStored, NotStoredObserver, ReaperSettings};
use justonce::worker::{Next, RoundEnd, Worker, WorkerObserver};
use metrics::counter;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::metrics::{EXPIRATIONS, NOT_STORED, WORKER_ROUNDS};

/// How often the metrics drop old samples.
const METRICS_EVERY: Duration = Duration::from_secs(5);

/// The workers that run as long as the gateway does.
pub(crate) struct Background {
    /// They end when they are dropped; a sweep may be cut off at any point.
    _workers: [Worker; 2],
}

impl Background {
    /// Ends retentions, and keeps the metrics small.
    pub(crate) fn start(engine: &Engine, handle: PrometheusHandle) -> Self {
        let expirations = counter!(EXPIRATIONS.name);
        let reaper =
            engine.start_observed_reaper(ReaperSettings::default(), move |swept| match swept {
                Ok(report) => expirations.increment(report.removed + report.buried),
                Err(error) => {
                    tracing::warn!(target: "justonce::store", %error, "sweeping failed");
                }
            });
        let tidy = move || {
            handle.run_upkeep();
            async { Ok::<_, Infallible>(Next::Pause) }
        };
        let metrics = Worker::start(engine.schedule("metrics", METRICS_EVERY), tidy);
        Self { _workers: [reaper, metrics] }
    }
}

/// Counts what the engine does in the background.
pub(crate) struct CountBackground;

impl NotStoredObserver for CountBackground {
    fn not_stored(&self, step: &NotStored<'_>) {
        counter!(NOT_STORED.name, "step" => step.step).increment(1);
    }
}

impl WorkerObserver for CountBackground {
    fn round_ended(&self, end: &RoundEnd<'_>) {
        let result = if end.error.is_some() { "failed" } else { "done" };
        counter!(WORKER_ROUNDS.name, "worker" => end.worker, "result" => result).increment(1);
    }
}
