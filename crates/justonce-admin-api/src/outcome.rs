//! Outcomes, as they are shown and as they are given.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A stored outcome: names and sizes, and the contents if they were requested.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutcomeDetail {
    /// The HTTP status, if it is an HTTP response.
    pub status: Option<u16>,
    /// The names of the stored headers.
    pub header_names: Vec<String>,
    /// The size of the body.
    pub body_bytes: u64,
    /// False for a body that was too large to be stored.
    pub body_stored: bool,
    /// The stored headers, if contents were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<(String, String)>>,
    /// The body, if contents were requested and it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body as Base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

/// The outcome of a resolution. At most one of the three bodies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeInput {
    /// The HTTP status that clients get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The headers that clients get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body as JSON, stored as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Box<RawValue>>,
    /// The body as Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}
