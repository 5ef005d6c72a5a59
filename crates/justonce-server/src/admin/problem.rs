//! Problems of the admin API, in the same form as those of the gateway.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use justonce::embedded::backup::BackupError;
use justonce::http::{Problem, ProblemCode};
use justonce::saga::SagaState;
use justonce::{Entropy, Lost, StateName, StoreError};
use serde_json::json;

/// Why something was refused.
#[derive(Debug)]
pub(crate) struct Refusal(Problem);

impl Refusal {
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self(Problem::new(ProblemCode::RequestInvalid, detail))
    }

    pub(crate) fn not_found() -> Self {
        Self(Problem::new(ProblemCode::RecordNotFound, NOT_FOUND))
    }

    pub(crate) fn no_saga() -> Self {
        Self(Problem::new(ProblemCode::RecordNotFound, NO_SAGA))
    }

    /// The response to a retry of a saga that is not stuck.
    pub(crate) fn not_stuck(state: SagaState) -> Self {
        let detail =
            format!("The saga is {}: only what is stuck or parked can be retried.", state.as_str());
        Self(Problem::new(ProblemCode::NotStuck, detail).with("state", json!(state.as_str())))
    }

    /// The response to a retry of a saga that is being driven.
    pub(crate) fn driven() -> Self {
        Self(Problem::new(ProblemCode::InFlight, DRIVEN))
    }

    /// The response when the engine is full.
    pub(crate) fn overloaded(error: &impl std::fmt::Display) -> Self {
        let detail = format!("Nothing was changed: {error}. The request may be repeated.");
        Self(Problem::new(ProblemCode::Overloaded, detail))
    }

    /// The response to a resolution, an expire or an erase that changed nothing.
    pub(crate) fn lost(lost: Lost, state: Option<StateName>) -> Self {
        let state = state.unwrap_or(StateName::Absent).as_str();
        let problem = match lost {
            Lost::Gone => Problem::new(ProblemCode::RecordNotFound, NOT_FOUND),
            Lost::Superseded => Problem::new(ProblemCode::FenceOld, FENCE_OLD),
            Lost::Settled | Lost::Held | Lost::NotUnknown => {
                let detail = format!(
                    "The operation is {state}, and only what is unknown can be \
                                      resolved. Nothing was changed."
                );
                Problem::new(ProblemCode::NotUnknown, detail)
            }
            Lost::NotEnded => {
                let detail = format!(
                    "The operation is {state}, and only what is completed or failed for good can \
                     be expired or erased. Nothing was changed."
                );
                Problem::new(ProblemCode::NotEnded, detail)
            }
        };
        Self(problem.with("state", json!(state)))
    }
}

impl From<BackupError> for Refusal {
    fn from(error: BackupError) -> Self {
        tracing::warn!(target: "justonce::store", %error, "no backup was made");
        let code = match error {
            BackupError::Busy => ProblemCode::InFlight,
            _ => ProblemCode::StoreUnavailable,
        };
        Self(Problem::new(code, format!("No backup was made: {error}.")))
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::warn!(target: "justonce::store", %error, "the store failed");
        let detail = format!("The store: {error}. The request may be repeated.");
        Self(Problem::new(ProblemCode::StoreUnavailable, detail))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let instance = Entropy::from_system().next_uuid();
        let code = self.0.code().as_str();
        tracing::info!(target: "justonce::admin", code, %instance, "answered with a problem");
        self.0.into_response("", instance).map(Body::from)
    }
}

/// The page of a problem, so that its `type` leads somewhere on this address too.
pub(crate) async fn page(axum::extract::Path(code): axum::extract::Path<String>) -> Response {
    let found = ProblemCode::ALL.iter().find(|known| known.as_str() == code);
    let kind = [(http::header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
    match found {
        Some(code) => (kind, code.page()).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such page.\n").into_response(),
    }
}

const NO_SAGA: &str = "The store keeps no saga of this name.";
const DRIVEN: &str = "The saga is being driven. Look at it again later.";
const NOT_FOUND: &str = "The store keeps no record of this name.";
const FENCE_OLD: &str = "The operation was claimed again since this fence was seen, or never had \
                         it. Look at the record again. Nothing was changed.";

#[cfg(test)]
mod tests {
    use justonce_admin_api::CODES;

    use super::*;

    #[test]
    fn the_codes_of_the_api_are_those_of_the_problems() {
        let known = ProblemCode::ALL.iter().map(|code| code.as_str());
        assert!(CODES.iter().all(|code| known.clone().any(|known| known == *code)));
        let lost = [Lost::Gone, Lost::Superseded, Lost::Settled, Lost::NotUnknown, Lost::NotEnded];
        let mut refusals = vec![
            Refusal::invalid(""),
            Refusal::not_found(),
            Refusal::no_saga(),
            Refusal::not_stuck(SagaState::Done),
            Refusal::driven(),
            Refusal::overloaded(&""),
        ];
        refusals.extend(lost.map(|lost| Refusal::lost(lost, None)));
        for Refusal(problem) in refusals {
            assert!(CODES.contains(&problem.code().as_str()), "{:?}", problem.code());
        }
    }
}
