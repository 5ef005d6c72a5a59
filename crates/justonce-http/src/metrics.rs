//! The metrics of this crate.

use justonce_core::metrics::{Metric, MetricKind};
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Requests by their end.
pub const REQUESTS: Metric = Metric::counter(
    "idempotency_requests_total",
    &["route", "status", "duplicate"],
    "Requests by what became of them.",
);
/// Replays.
pub const REPLAYS: Metric = Metric::counter(
    "idempotency_replays_total",
    &["route"],
    "Requests answered with a stored outcome.",
);
/// Reused keys.
pub const MISMATCHES: Metric = Metric::counter(
    "idempotency_mismatches_total",
    &["route"],
    "Requests refused because their key was used for another one.",
);
/// Takeovers.
pub const TAKEOVERS: Metric = Metric::counter(
    "idempotency_takeovers_total",
    &["route"],
    "Executions after the first of their operation.",
);
/// Duplicates of running operations.
pub const CONCURRENT: Metric = Metric::counter(
    "idempotency_concurrent_attempts_total",
    &["route"],
    "Duplicates that came while their operation was running.",
);
/// Requests that a route's pattern probably misses.
pub const NEAR_MISSES: Metric = Metric::counter(
    "idempotency_near_misses_total",
    &["route"],
    "Requests that look like the route's and fell under another rule, while none has matched it: \
     its pattern is probably wrong.",
);
/// Callers at their limits.
pub const LIMITED: Metric = Metric::counter(
    "idempotency_limited_total",
    &["route", "limit"],
    "Requests refused with 429 because their caller had reached a limit: `rate`, `concurrent`, \
     `stored_bytes`.",
);
/// Tokens that do not identify their callers.
pub const CREDENTIALS_REFUSED: Metric = Metric::counter(
    "idempotency_credentials_refused_total",
    &["route", "reason"],
    "Requests refused because their token does not identify a caller: `missing`, `ambiguous`, \
     `malformed`, `too_long`, `algorithm`, `critical`, `issuer`, `key`, `signature`, `audience`, \
     `expired`, `not_yet_valid`, `claim` with 401, `unavailable` (no keys) with 503. Only of \
     routes with `jwt:…` in `scope`.",
);
/// What request bodies take of the memory for them.
pub const BODY_BUDGET_USED: Metric = Metric::gauge(
    "idempotency_body_budget_used_bytes",
    &[],
    "Bytes of request bodies that are held, beyond the first 16 KiB of each.",
);
/// The memory for request bodies.
pub const BODY_BUDGET_LIMIT: Metric = Metric::gauge(
    "idempotency_body_budget_limit_bytes",
    &[],
    "How many there may be; bodies wait for it up to 5 s.",
);
/// Bodies that had to wait.
pub const BODY_BUDGET_WAITS: Metric = Metric::counter(
    "idempotency_body_budget_waits_total",
    &[],
    "How often a request body had to wait for others to end.",
);
/// Bodies that waited for too long.
pub const BODY_BUDGET_REFUSALS: Metric = Metric::counter(
    "idempotency_body_budget_refusals_total",
    &[],
    "Requests refused with 503 because their bodies had waited for too long.",
);
/// Waiting duplicates.
pub const WAITERS: Metric = Metric::gauge(
    "idempotency_waiters",
    &["route"],
    "Duplicates that wait for a running operation now.",
);
/// The waits of duplicates.
pub const LOCK_WAIT: Metric =
    Metric::histogram("idempotency_lock_wait_seconds", &["route"], "Time that duplicates waited.");
/// The time of executions.
pub const PROCESSING: Metric = Metric::histogram(
    "idempotency_processing_duration_seconds",
    &["route"],
    "Time that executions took.",
);
/// Operations that became unknown.
pub const UNKNOWN: Metric = Metric::counter(
    "idempotency_unknown_outcomes_total",
    &["route", "reason"],
    "Operations that became unknown, each counted once: `reported`, `timed_out`, `panicked` and \
     `dropped` by their owner; `lapsed` and `attempts_exhausted` because their owner was gone.",
);
/// Calls of the store.
pub const STORE_OPERATIONS: Metric = Metric::counter(
    "idempotency_store_operations_total",
    &["operation", "status"],
    "Calls of the store, by their result or `error`.",
);
/// The time of calls of the store.
pub const STORE_SECONDS: Metric = Metric::histogram(
    "idempotency_store_operation_seconds",
    &["operation"],
    "Time that calls of the store took.",
);

/// Every metric of this crate.
pub const ALL: [Metric; 18] = [
    REQUESTS,
    REPLAYS,
    MISMATCHES,
    TAKEOVERS,
    CONCURRENT,
    NEAR_MISSES,
    LIMITED,
    CREDENTIALS_REFUSED,
    BODY_BUDGET_USED,
    BODY_BUDGET_LIMIT,
    BODY_BUDGET_WAITS,
    BODY_BUDGET_REFUSALS,
    WAITERS,
    LOCK_WAIT,
    PROCESSING,
    UNKNOWN,
    STORE_OPERATIONS,
    STORE_SECONDS,
];

/// Tells the installed recorder what the metrics of this crate mean. Call it once, before the layer
/// is built.
pub fn describe_metrics() {
    ALL.iter().for_each(describe);
}

/// Tells the installed recorder what a metric means.
pub fn describe(metric: &Metric) {
    let Metric { name, help, .. } = *metric;
    match metric.kind {
        MetricKind::Counter => describe_counter!(name, help),
        MetricKind::Gauge => describe_gauge!(name, help),
        MetricKind::Histogram => describe_histogram!(name, Unit::Seconds, help),
    }
}
