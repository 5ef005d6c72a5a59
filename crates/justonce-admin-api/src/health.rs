//! Health.

/// The response to `GET /readyz`: one line of text, with 200 if the gateway can take requests and
/// 503 if not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether it can take requests.
    pub is_ready: bool,
    /// `ready`, or why not. A caller without the token is not shown the reason.
    pub detail: String,
}
