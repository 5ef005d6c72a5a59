//! The metrics of this crate, and the page docs/metrics.md of all of them. Those of requests and
//! store calls are in `justonce-http`.

use justonce::http::metrics::{
    BODY_BUDGET_LIMIT, BODY_BUDGET_REFUSALS, BODY_BUDGET_USED, BODY_BUDGET_WAITS, CONCURRENT,
    CREDENTIALS_REFUSED, LIMITED, LOCK_WAIT, MISMATCHES, NEAR_MISSES, PROCESSING, REPLAYS,
    REQUESTS, STORE_OPERATIONS, STORE_SECONDS, TAKEOVERS, UNKNOWN, WAITERS,
    describe as describe_metric,
};
use justonce::metrics::Metric;
use justonce_jwt::metrics::{
    CHECKS as TOKEN_CHECKS, FETCHED as JWKS_FETCHED, FETCHES as JWKS_FETCHES, KEYS as JWKS_KEYS,
};
use justonce_proxy::RefusalReason;
use justonce_proxy::metrics::TLS_HANDSHAKES;
use metrics::{counter, gauge};

use self::scraped::{
    BUILD_INFO, CONNECTIONS, CONNECTIONS_ACCEPTED, CONNECTIONS_LIMIT, CONNECTIONS_REFUSED,
    CONNECTIONS_SPOKEN, CPU, EXECUTING, MAX_FDS, MEMORY, OPEN_FDS, START_TIME, STORE_BOUND_LIMIT,
    STORE_BOUND_USED, STORE_BYTES, STORE_DAMAGED, STORE_RECORDS, STORE_UP, STORE_WARNING,
    UNKNOWN_OLDEST, UNKNOWN_WAITING, UPSTREAM_BREAKER_OPEN, UPSTREAM_CONNECTIONS, UPSTREAM_HEALTHY,
    UPSTREAM_IN_FLIGHT,
};

pub(crate) const PROBES: Metric = Metric::counter(
    "idempotency_probes_total",
    &["route", "result"],
    "Questions to the service of a route with a probe: `completed`, `failed`, `released`, \
     `unclear`, `too_early`, `no_answer`, `late`, `store_failed`.",
);
pub(crate) const RESOLUTIONS: Metric = Metric::counter(
    "idempotency_resolutions_total",
    &["by", "result"],
    "Resolutions by `probe`, `callback` or `operator`: `completed`, `failed`, `released`, or \
     `refused` because another one came first or the fence was old.",
);
pub(crate) const CACHE_LOOKUPS: Metric = Metric::counter(
    "idempotency_cache_lookups_total",
    &["cache", "result"],
    "Duplicates that the `near` cache, or the `redis` in front of PostgreSQL, was asked for: \
     `hit`, `miss`, `skipped`, `failed`. Only where there is such a cache.",
);
pub(crate) const EXPIRATIONS: Metric =
    Metric::counter("idempotency_ttl_expirations_total", &[], "Retentions that ended.");
pub(crate) const RELOADS: Metric = Metric::counter(
    "justonce_reloads_total",
    &["result"],
    "Configurations read while running: `changed` or `refused`.",
);
pub(crate) const CERTIFICATE_RELOADS: Metric = Metric::counter(
    "justonce_certificate_reloads_total",
    &["result"],
    "Certificates for clients read while running, because their files or settings had changed: \
     `changed`, or `refused` (the old one is still served).",
);
pub(crate) const WORKER_ROUNDS: Metric = Metric::counter(
    "justonce_worker_rounds_total",
    &["worker", "result"],
    "Rounds of background work by `reaper`, `prober`, `completer`, `health`, `jwks` and `metrics`: \
     `done` or `failed`. A health check that an address fails is no failed round.",
);
pub(crate) const COMPLETED: Metric = Metric::counter(
    "justonce_completer_operations_total",
    &["result"],
    "Operations of dead gateways on routes with `complete`: `ended`, `not_yet` (tried, and to be \
     tried again), `left` (another owner has it), `trouble`.",
);
pub(crate) const COMPLETER_RECORDS: Metric = Metric::counter(
    "justonce_completer_records_total",
    &[],
    "Records that the completer looked at.",
);
pub(crate) const COMPLETER_ROUNDS: Metric =
    Metric::counter("justonce_completer_rounds_total", &[], "Rounds of the completer.");
pub(crate) const COMPLETER_PARKED: Metric = Metric::gauge(
    "justonce_completer_parked",
    &[],
    "Operations that this gateway's completer has left for good, because too many drives in a row \
     failed. Routes have a limit of attempts, after which an operation is unknown instead, so this \
     is 0.",
);

pub(crate) const HEALTH_CHECKS: Metric = Metric::counter(
    "justonce_health_checks_total",
    &["upstream", "result"],
    "Health checks of addresses: `passed` or `failed`. Only of upstreams that are checked.",
);

pub(crate) const NOT_STORED: Metric = Metric::counter(
    "idempotency_not_stored_total",
    &["step"],
    "Steps that were taken in the background, for callers who had left, and could not be stored: \
     the lease lapses instead. `complete` and `fail` lose what was to be replayed.",
);

pub(crate) const ACCESS_LOG_DROPPED: Metric = Metric::counter(
    "justonce_access_log_dropped_total",
    &[],
    "Lines of the access log that were left out: they could not be written, or not as fast as \
     requests came.",
);

pub(crate) const UNREAD_REQUESTS: Metric = Metric::counter(
    "justonce_unread_requests_total",
    &["reason"],
    "HTTP/1 requests that no route saw: `malformed` heads (400), `too_large` (431, 414), those \
     that did not come in time (`timed_out`) or ended too early (`cut_off`). They are in no other \
     count of requests.",
);

/// The results of a reload.
const RELOAD_RESULTS: [&str; 2] = ["changed", "refused"];
/// Who resolves, and how a resolution ends.
const RESOLVERS: [&str; 3] = ["probe", "callback", "operator"];
const RESOLUTION_RESULTS: [&str; 4] = ["completed", "failed", "released", "refused"];
/// What works in the background, and how its rounds end.
const WORKERS: [&str; 6] = ["reaper", "prober", "completer", "health", "jwks", "metrics"];
const WORKER_RESULTS: [&str; 2] = ["done", "failed"];
/// The steps that are taken in the background.
const BACKGROUND_STEPS: [&str; 5] = ["complete", "fail", "release", "abandon", "checkpoint"];
/// The results of what a completer drives on.
pub(crate) const COMPLETER_RESULTS: [&str; 4] = ["ended", "not_yet", "left", "trouble"];
/// The results of a probe.
const PROBE_RESULTS: [&str; 8] = [
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
pub(crate) const STORE_WARNINGS: [&str; 3] =
    ["clock-floor-ahead", "directory-open-to-others", "restored-from-backup"];

/// What is computed for each scrape, and not counted as it happens.
pub(crate) mod scraped {
    pub(crate) use justonce::metrics::Metric;

    pub(crate) const BUILD_INFO: Metric =
        Metric::gauge("justonce_build_info", &["version"], "The release that runs; always 1.");
    pub(crate) const EXECUTING: Metric =
        Metric::gauge("idempotency_executing", &[], "Operations being executed now.");
    pub(crate) const STORE_UP: Metric =
        Metric::gauge("idempotency_store_up", &[], "Whether the store can take a step: 1, or 0.");
    pub(crate) const STORE_RECORDS: Metric =
        Metric::gauge("idempotency_store_records", &["state"], "Records in the store.");
    pub(crate) const STORE_BYTES: Metric =
        Metric::gauge("idempotency_store_bytes", &["state"], "Bytes that the records take.");
    pub(crate) const STORE_DAMAGED: Metric = Metric::gauge(
        "idempotency_store_damaged_records",
        &[],
        "Records that the store could not read since it was opened: they are skipped, and \
         `justonce keys list` names them.",
    );
    pub(crate) const STORE_WARNING: Metric = Metric::gauge(
        "idempotency_store_warning",
        &["name"],
        "Whether the store has this warning, which the log explains: 1, or 0. There are \
         `clock-floor-ahead`, `directory-open-to-others` and `restored-from-backup`.",
    );
    pub(crate) const STORE_BOUND_USED: Metric = Metric::gauge(
        "idempotency_store_bound_used",
        &["bound"],
        "How much is used of what the embedded store bounds: `unsettled_records` and \
         `unsettled_bytes` in progress or unknown, in memory; `queued_writes` and `queued_bytes` \
         that wait for the disk.",
    );
    pub(crate) const STORE_BOUND_LIMIT: Metric = Metric::gauge(
        "idempotency_store_bound_limit",
        &["bound"],
        "The bounds. At one of them new operations are refused with 503.",
    );
    pub(crate) const UNKNOWN_WAITING: Metric = Metric::gauge(
        "idempotency_unknown_waiting",
        &[],
        "Unknown operations that wait for a resolution, over all gateways on the store.",
    );
    pub(crate) const UNKNOWN_OLDEST: Metric = Metric::gauge(
        "idempotency_unknown_oldest_seconds",
        &[],
        "For how long the oldest unknown operation has been waiting; of more than 8,000, the \
         oldest of so many.",
    );
    pub(crate) const UPSTREAM_HEALTHY: Metric = Metric::gauge(
        "justonce_upstream_healthy",
        &["upstream", "address"],
        "Whether an address is healthy as far as checks know: 1, or 0. Without checks it is 1.",
    );
    pub(crate) const UPSTREAM_BREAKER_OPEN: Metric = Metric::gauge(
        "justonce_upstream_breaker_open",
        &["upstream", "address"],
        "Whether the circuit breaker of an address is open, or lets one request try: 1, or 0.",
    );
    pub(crate) const UPSTREAM_IN_FLIGHT: Metric = Metric::gauge(
        "justonce_upstream_requests_in_flight",
        &["upstream", "address"],
        "Requests that are under way at an address, until the ends of their responses.",
    );
    pub(crate) const UPSTREAM_CONNECTIONS: Metric = Metric::gauge(
        "justonce_upstream_connections",
        &["upstream", "address", "state"],
        "Open connections to an address: `busy` or `idle`.",
    );
    pub(crate) const CONNECTIONS: Metric = Metric::gauge(
        "justonce_connections",
        &["protocol"],
        "Open connections of clients: `http1`, `http2`, or `other`, which have not said what they \
         speak or have switched to another protocol.",
    );
    pub(crate) const CONNECTIONS_LIMIT: Metric = Metric::gauge(
        "justonce_connections_limit",
        &[],
        "How many may be open (`limits.connections`).",
    );
    pub(crate) const CONNECTIONS_ACCEPTED: Metric = Metric::counter(
        "justonce_connections_accepted_total",
        &[],
        "Connections accepted from clients.",
    );
    pub(crate) const CONNECTIONS_SPOKEN: Metric = Metric::counter(
        "justonce_connections_total",
        &["protocol"],
        "Those of them that spoke `http1` or `http2`.",
    );
    pub(crate) const CONNECTIONS_REFUSED: Metric = Metric::counter(
        "justonce_connections_refused_total",
        &["reason"],
        "Connections closed at once: `limit`, because too many were open; `proxy`, because they \
         came from no trusted proxy or without a valid PROXY protocol header.",
    );
    pub(crate) const MEMORY: Metric =
        Metric::gauge("process_resident_memory_bytes", &[], "Resident memory size in bytes.");
    pub(crate) const OPEN_FDS: Metric =
        Metric::gauge("process_open_fds", &[], "Number of open file descriptors.");
    pub(crate) const MAX_FDS: Metric =
        Metric::gauge("process_max_fds", &[], "Maximum number of open file descriptors.");
    pub(crate) const START_TIME: Metric = Metric::gauge(
        "process_start_time_seconds",
        &[],
        "Start time of the process since the Unix epoch in seconds.",
    );
    pub(crate) const CPU: Metric = Metric::counter(
        "process_cpu_seconds_total",
        &[],
        "Total user and system CPU time spent in seconds.",
    );
}

/// Every metric, by the section of docs/metrics.md in which it is.
const SECTIONS: [(&str, &[Metric]); 7] = [
    (
        "requests",
        &[
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
            EXECUTING,
        ],
    ),
    ("unknown", &[UNKNOWN, UNKNOWN_WAITING, UNKNOWN_OLDEST, RESOLUTIONS, PROBES]),
    (
        "store",
        &[
            STORE_UP,
            STORE_RECORDS,
            STORE_BYTES,
            STORE_DAMAGED,
            STORE_WARNING,
            STORE_OPERATIONS,
            STORE_SECONDS,
            STORE_BOUND_USED,
            STORE_BOUND_LIMIT,
            NOT_STORED,
            EXPIRATIONS,
            CACHE_LOOKUPS,
        ],
    ),
    (
        "upstreams",
        &[
            UPSTREAM_HEALTHY,
            HEALTH_CHECKS,
            UPSTREAM_BREAKER_OPEN,
            UPSTREAM_IN_FLIGHT,
            UPSTREAM_CONNECTIONS,
        ],
    ),
    ("identity", &[TOKEN_CHECKS, JWKS_FETCHES, JWKS_FETCHED, JWKS_KEYS, TLS_HANDSHAKES]),
    (
        "connections",
        &[
            CONNECTIONS,
            CONNECTIONS_LIMIT,
            CONNECTIONS_ACCEPTED,
            CONNECTIONS_SPOKEN,
            CONNECTIONS_REFUSED,
            UNREAD_REQUESTS,
        ],
    ),
    (
        "gateway",
        &[
            BUILD_INFO,
            RELOADS,
            CERTIFICATE_RELOADS,
            ACCESS_LOG_DROPPED,
            WORKER_ROUNDS,
            COMPLETED,
            COMPLETER_RECORDS,
            COMPLETER_ROUNDS,
            COMPLETER_PARKED,
            MEMORY,
            OPEN_FDS,
            MAX_FDS,
            START_TIME,
            CPU,
        ],
    ),
];

/// Tells the recorder what the metrics mean, and makes the series that belong to no route, so that
/// rates begin at zero.
pub(crate) fn describe() {
    SECTIONS.iter().flat_map(|(_, metrics)| *metrics).for_each(describe_metric);
    for result in RELOAD_RESULTS {
        counter!(RELOADS.name, "result" => result).increment(0);
        counter!(CERTIFICATE_RELOADS.name, "result" => result).increment(0);
    }
    for result in COMPLETER_RESULTS {
        counter!(COMPLETED.name, "result" => result).increment(0);
    }
    for by in RESOLVERS {
        for result in RESOLUTION_RESULTS {
            counter!(RESOLUTIONS.name, "by" => by, "result" => result).increment(0);
        }
    }
    for worker in WORKERS {
        for result in WORKER_RESULTS {
            counter!(WORKER_ROUNDS.name, "worker" => worker, "result" => result).increment(0);
        }
    }
    for step in BACKGROUND_STEPS {
        counter!(NOT_STORED.name, "step" => step).increment(0);
    }
    for reason in RefusalReason::ALL {
        counter!(UNREAD_REQUESTS.name, "reason" => reason.as_str()).increment(0);
    }
    for metric in [EXPIRATIONS, COMPLETER_RECORDS, COMPLETER_ROUNDS, ACCESS_LOG_DROPPED] {
        counter!(metric.name).increment(0);
    }
    gauge!(COMPLETER_PARKED.name).set(0.0);
}

/// Makes the series of a route that is probed.
pub(crate) fn describe_probe(route: &str) {
    for result in PROBE_RESULTS {
        counter!(PROBES.name, "route" => route.to_owned(), "result" => result).increment(0);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::{env, fs};

    use super::SECTIONS;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    const HEAD: &str = "| metric | type | labels | what it means |\n|---|---|---|---|\n";
    const END: &str = "<!-- metrics: end -->";

    /// The page with every table as the code has it.
    fn generated(page: &str) -> String {
        let mut page = page.to_owned();
        for (section, metrics) in SECTIONS {
            let begin = format!("<!-- metrics: {section} -->\n");
            let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
            let (_, after) = rest.split_once(END).unwrap();
            let mut new = format!("{before}{begin}{HEAD}");
            metrics.iter().for_each(|metric| writeln!(new, "{}", metric.row()).unwrap());
            page = new + END + after;
        }
        page
    }

    /// `JUSTONCE_UPDATE=1 cargo test -p justonce-server --lib metrics` writes the page.
    #[test]
    fn the_page_is_made_from_the_metrics() {
        let page = fs::read_to_string(PAGE).unwrap();
        let current = generated(&page);
        if env::var_os("JUSTONCE_UPDATE").is_some() {
            fs::write(PAGE, &current).unwrap();
        } else {
            assert!(page == current, "docs/metrics.md is old: run this with JUSTONCE_UPDATE=1");
        }
    }
}
