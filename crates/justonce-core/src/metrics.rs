//! How a crate declares its metrics: as data, from which descriptions and documents are made.
//!
//! ```
//! use justonce_core::metrics::{Metric, MetricKind};
//!
//! const REPLAYS: Metric =
//!     Metric::counter("idempotency_replays_total", &["route"], "Requests that were replayed.");
//! assert_eq!(REPLAYS.kind, MetricKind::Counter);
//! assert_eq!(
//!     REPLAYS.row(),
//!     "| `idempotency_replays_total` | counter | `route` | Requests that were replayed. |"
//! );
//! ```

use std::fmt;

/// A metric: what it is called, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// What kind of metric it is.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means, in one sentence or a few.
    pub help: &'static str,
}

/// The kinds of metrics, as Prometheus names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often which values were measured.
    Histogram,
}

impl Metric {
    /// A counter.
    #[must_use]
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Counter, labels, help }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Gauge, labels, help }
    }

    /// A histogram.
    #[must_use]
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Histogram, labels, help }
    }

    /// The row of a Markdown table with the name, the kind, the labels and the meaning.
    #[must_use]
    pub fn row(&self) -> String {
        let labels = match self.labels {
            [] => "none".to_owned(),
            labels => format!("`{}`", labels.join("`, `")),
        };
        format!("| `{}` | {} | {labels} | {} |", self.name, self.kind, self.help)
    }
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}
