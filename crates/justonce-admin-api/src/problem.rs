//! Problems: RFC 9457, with a code of ours.

use serde::{Deserialize, Serialize};

/// Why a request was refused, as far as clients need it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// One of [`CODES`], or one of a newer gateway.
    pub code: String,
    /// What was wrong with this request.
    pub detail: String,
    /// The state of the record or saga, where it is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// The codes of the admin API's problems. Each has a page in docs/errors.
pub const CODES: [&str; 9] = [
    "request-invalid",
    "record-not-found",
    "not-unknown",
    "not-ended",
    "not-stuck",
    "fence-old",
    "in-flight",
    "overloaded",
    "store-unavailable",
];
