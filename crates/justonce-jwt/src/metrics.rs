//! The metrics of this crate.

use justonce_core::metrics::Metric;
use metrics::{Counter, Gauge, counter, gauge};

/// Fetches of keys.
pub const FETCHES: Metric = Metric::counter(
    "justonce_jwks_fetches_total",
    &["issuer", "result"],
    "Reads of the keys of an issuer, from its file or its address: `changed`, `unchanged` or \
     `failed`.",
);
/// When keys were fetched.
pub const FETCHED: Metric = Metric::gauge(
    "justonce_jwks_fetched_timestamp_seconds",
    &["issuer"],
    "When the keys of an issuer were last read, in seconds since 1970; 0 if never. Their age is \
     `time()` minus this: over `max_age` they count no more.",
);
/// How many keys there are.
pub const KEYS: Metric = Metric::gauge(
    "justonce_jwks_keys",
    &["issuer"],
    "The keys of an issuer that can verify a signature.",
);
/// How tokens were checked.
pub const CHECKS: Metric = Metric::counter(
    "justonce_token_checks_total",
    &["result"],
    "Tokens that were looked at: `cached` (verified before), `verified` (by their signature), \
     `refused`.",
);

/// Every metric of this crate.
pub const ALL: [Metric; 4] = [FETCHES, FETCHED, KEYS, CHECKS];

/// The handles of one issuer.
pub(crate) struct IssuerMeters {
    pub(crate) changed: Counter,
    pub(crate) unchanged: Counter,
    pub(crate) failed: Counter,
    pub(crate) fetched: Gauge,
    pub(crate) keys: Gauge,
}

impl IssuerMeters {
    pub(crate) fn of(issuer: &str) -> Self {
        let named = || issuer.to_owned();
        let fetches =
            |result: &'static str| counter!(FETCHES.name, "issuer" => named(), "result" => result);
        Self {
            changed: fetches("changed"),
            unchanged: fetches("unchanged"),
            failed: fetches("failed"),
            fetched: gauge!(FETCHED.name, "issuer" => issuer.to_owned()),
            keys: gauge!(KEYS.name, "issuer" => issuer.to_owned()),
        }
    }
}

/// The handles of a verifier.
pub(crate) struct CheckMeters {
    pub(crate) cached: Counter,
    pub(crate) verified: Counter,
    pub(crate) refused: Counter,
}

impl Default for CheckMeters {
    fn default() -> Self {
        let checks = |result: &'static str| counter!(CHECKS.name, "result" => result);
        Self { cached: checks("cached"), verified: checks("verified"), refused: checks("refused") }
    }
}
