//! What an answer means to a client.

use http::header::{CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use justonce_testkit::history::Reply;
use serde_json::Value;

/// The header that marks a replay.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Acknowledged {
        /// What must be the same in every replay: see [`content`].
        answer: String,
        /// Whether it was marked as a replay.
        replayed: bool,
    },
    /// Another request with this key is running.
    InFlight,
    /// It is not known whether it was done.
    Unknown,
    /// The key was used for something else.
    Mismatch,
    /// Not now: the same request, later.
    TryAgain,
    /// An answer that no client of this API expects.
    Surprise(String),
}

/// What a replay repeats of a response: its status, its body, and the headers that describe it.
pub(crate) fn content(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let header =
        |name: HeaderName| headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let (kind, location) = (header(CONTENT_TYPE), header(LOCATION));
    let [kind, location, body] = [kind, location, body].map(String::from_utf8_lossy);
    format!("{status} {kind} {location} {body}")
}

impl Answer {
    /// Reads an answer.
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        if status.is_success() {
            let answer = content(status, headers, body);
            return Self::Acknowledged { answer, replayed: headers.contains_key(REPLAYED) };
        }
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let code = problem.get("code").and_then(Value::as_str).unwrap_or_default();
        let retryable = problem.get("retryable").and_then(Value::as_bool).unwrap_or_default();
        match (status, code) {
            (_, "in-flight") => Self::InFlight,
            (_, "outcome-unknown") => Self::Unknown,
            (_, "key-mismatch") => Self::Mismatch,
            // With the same key it is safe to ask again after any of these: that is the guarantee.
            (
                StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT,
                _,
            ) => Self::TryAgain,
            _ if retryable => Self::TryAgain,
            _ => Self::Surprise(format!("{status} {code}").trim_end().to_owned()),
        }
    }

    /// The answer in a history.
    pub(crate) fn reply(&self) -> Reply {
        match self {
            Self::Acknowledged { answer, replayed } => {
                Reply::Acknowledged { answer: answer.clone(), replayed: *replayed }
            }
            Self::InFlight => Reply::InFlight,
            Self::Unknown => Reply::Unknown,
            // Whether a mismatch was to be expected, the client decides.
            Self::Mismatch => Reply::Unavailable,
            // The service may have failed after it charged.
            Self::TryAgain => Reply::Lost,
            Self::Surprise(text) => Reply::Surprise(text.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &'static str) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer::read(status, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn answers_mean_what_the_contract_says() {
        let cases = [
            (409, r#"{"code":"in-flight","retryable":true}"#, Answer::InFlight),
            (409, r#"{"code":"outcome-unknown","retryable":false}"#, Answer::Unknown),
            (422, r#"{"code":"key-mismatch","retryable":false}"#, Answer::Mismatch),
            (409, r#"{"code":"superseded","retryable":true}"#, Answer::TryAgain),
            (502, r#"{"code":"upstream-failed","retryable":false}"#, Answer::TryAgain),
            (503, "busy", Answer::TryAgain),
            (504, "", Answer::TryAgain),
            (
                400,
                r#"{"code":"key-missing"}"#,
                Answer::Surprise("400 Bad Request key-missing".into()),
            ),
            (500, "oops", Answer::Surprise("500 Internal Server Error".into())),
        ];
        for (status, body, expected) in cases {
            assert_eq!(read(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn a_replay_is_told_from_a_first_answer() {
        let mut headers = HeaderMap::new();
        let first = Answer::read(StatusCode::CREATED, &headers, b"x");
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        let second = Answer::read(StatusCode::CREATED, &headers, b"x");
        let Answer::Acknowledged { answer: one, replayed: false } = first else { panic!() };
        let Answer::Acknowledged { answer: two, replayed: true } = second else { panic!() };
        assert_eq!(one, two);
    }
}
