//! The names of this crate's metrics, and what they mean. Those of requests and store calls are in
//! `justonce-http`; docs/metrics.md lists all of them.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::resolutions;

pub(crate) const PROBES: &str = "idempotency_probes_total";
pub(crate) const RESOLUTIONS: &str = "idempotency_resolutions_total";
pub(crate) const CACHE_LOOKUPS: &str = "idempotency_cache_lookups_total";
pub(crate) const EXPIRATIONS: &str = "idempotency_ttl_expirations_total";
pub(crate) const RELOADS: &str = "justonce_reloads_total";
pub(crate) const COMPLETED: &str = "justonce_completer_operations_total";
pub(crate) const COMPLETER_RECORDS: &str = "justonce_completer_records_total";
pub(crate) const COMPLETER_ROUNDS: &str = "justonce_completer_rounds_total";
pub(crate) const COMPLETER_PARKED: &str = "justonce_completer_parked";

/// The results of a reload.
pub(crate) const RELOAD_RESULTS: [&str; 2] = ["changed", "refused"];
/// The results of what a completer drives on.
pub(crate) const COMPLETER_RESULTS: [&str; 4] = ["ended", "not_yet", "left", "trouble"];
/// The results of a probe.
pub(crate) const PROBE_RESULTS: [&str; 8] = [
    "completed",
    "failed",
    "released",
    "unclear",
    "too_early",
    "no_answer",
    "late",
    "store_failed",
];

/// The warnings that a store may have.
pub(crate) const STORE_WARNINGS: [&str; 2] = ["clock-floor-ahead", "directory-open-to-others"];

/// What is computed when somebody asks, and not counted as it happens.
pub(crate) mod scraped {
    /// A metric that is written into each scrape.
    pub(crate) struct Metric {
        pub(crate) name: &'static str,
        pub(crate) kind: &'static str,
        pub(crate) help: &'static str,
    }

    const fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { name, kind: "gauge", help }
    }

    pub(crate) const BUILD_INFO: Metric =
        gauge("justonce_build_info", "The release that runs; always 1.");
    pub(crate) const EXECUTING: Metric =
        gauge("idempotency_executing", "Operations being executed now.");
    pub(crate) const STORE_UP: Metric =
        gauge("idempotency_store_up", "Whether the store can take a step: 1, or 0.");
    pub(crate) const STORE_RECORDS: Metric =
        gauge("idempotency_store_records", "Records in the store, by state.");
    pub(crate) const STORE_BYTES: Metric =
        gauge("idempotency_store_bytes", "Bytes that the records take, by state.");
    pub(crate) const STORE_DAMAGED: Metric = gauge(
        "idempotency_store_damaged_records",
        "Records that the store could not read since it was opened.",
    );
    pub(crate) const STORE_WARNING: Metric =
        gauge("idempotency_store_warning", "Whether the store has this warning: 1, or 0.");
    pub(crate) const UNKNOWN_WAITING: Metric =
        gauge("idempotency_unknown_waiting", "Unknown operations that wait for a resolution.");
    pub(crate) const UNKNOWN_OLDEST: Metric = gauge(
        "idempotency_unknown_oldest_seconds",
        "For how long the oldest unknown operation has been waiting.",
    );
    pub(crate) const MEMORY: Metric =
        gauge("process_resident_memory_bytes", "Resident memory size in bytes.");
    pub(crate) const OPEN_FDS: Metric =
        gauge("process_open_fds", "Number of open file descriptors.");
    pub(crate) const MAX_FDS: Metric =
        gauge("process_max_fds", "Maximum number of open file descriptors.");
    pub(crate) const START_TIME: Metric = gauge(
        "process_start_time_seconds",
        "Start time of the process since the Unix epoch in seconds.",
    );
    pub(crate) const CPU: Metric = Metric {
        name: "process_cpu_seconds_total",
        kind: "counter",
        help: "Total user and system CPU time spent in seconds.",
    };
}

/// Tells the recorder what the metrics mean, and makes the series that belong to no route, so that
/// rates begin at zero.
pub(crate) fn describe() {
    justonce::http::describe_metrics();
    describe_counter!(PROBES, "Questions to a route's service about unknown operations.");
    describe_counter!(RESOLUTIONS, "Resolutions of unknown operations.");
    describe_counter!(
        CACHE_LOOKUPS,
        "Duplicates that a cache in front of the store was asked for."
    );
    describe_counter!(EXPIRATIONS, "Retentions that ended.");
    describe_counter!(RELOADS, "Configurations read while the gateway runs.");
    describe_counter!(COMPLETED, "Operations of other gateways that the completer drove on.");
    describe_counter!(COMPLETER_RECORDS, "Records that the completer looked at.");
    describe_counter!(COMPLETER_ROUNDS, "Rounds of the completer.");
    describe_gauge!(COMPLETER_PARKED, "Operations that the completer has parked.");
    resolutions::describe();
    for result in RELOAD_RESULTS {
        counter!(RELOADS, "result" => result).increment(0);
    }
    for result in COMPLETER_RESULTS {
        counter!(COMPLETED, "result" => result).increment(0);
    }
    for name in [EXPIRATIONS, COMPLETER_RECORDS, COMPLETER_ROUNDS] {
        counter!(name).increment(0);
    }
    gauge!(COMPLETER_PARKED).set(0.0);
}

/// Makes the series of a route that is probed.
pub(crate) fn describe_probe(route: &str) {
    for result in PROBE_RESULTS {
        counter!(PROBES, "route" => route.to_owned(), "result" => result).increment(0);
    }
}
