//! What all requests of one layer share, and the responses that the layer gives itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use justonce_core::{Engine, Entropy, Existing, Operation, Outcome, RecordId, RunError};
use tracing::{Level, info, warn};

use crate::body::ResponseBody;
use crate::caller_limits::CallerUsage;
use crate::claims::TokenVerifier;
use crate::fingerprint::{has_cookies, same_cookies};
use crate::meters::Disposition;
use crate::outcome::replay;
use crate::problem::{Instance, Problem, ProblemCode};
use crate::read::BodyBudget;
use crate::report::Notes;
use crate::routes::{Route, Routes};

/// `Retry-After` when the store or the layer is overloaded.
pub(crate) const RETRY_SOON: Duration = Duration::from_secs(1);
/// The status of a stored failure without one.
pub(crate) const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

/// Blocks new operations while the service is known to be down: they get 503 without a claim.
/// Replays are still answered.
pub trait CircuitBreaker: Send + Sync + 'static {
    /// How long new operations of a route are blocked; `None` if they are not.
    fn open_for(&self, route: &str) -> Option<Duration>;
}

/// Is notified when a duplicate finds an unknown operation, so that it can be probed at once.
pub trait UnknownListener: Send + Sync + 'static {
    /// A caller waits for this unknown operation of a route. Must not block.
    fn on_unknown(&self, route: &str, id: RecordId);
}

/// Changes the head of a request before it is stored.
pub(crate) type MapStoredRequest = Arc<dyn Fn(&mut http::request::Parts) + Send + Sync>;

/// What all requests of one layer share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) routes: Routes,
    pub(crate) circuit_breaker: Option<Arc<dyn CircuitBreaker>>,
    pub(crate) unknown_listener: Option<Arc<dyn UnknownListener>>,
    pub(crate) map_stored_request: Option<MapStoredRequest>,
    pub(crate) token_verifier: Option<Arc<dyn TokenVerifier>>,
    /// The address of the problem pages, before their path.
    pub(crate) problems_base: String,
    pub(crate) entropy: Entropy,
    pub(crate) body_budget: BodyBudget,
    pub(crate) caller_usage: CallerUsage,
}

impl Shared {
    /// The response to a problem on a route.
    pub(crate) fn problem<B>(&self, problem: Problem, route: &Route) -> Response<ResponseBody<B>> {
        let response = self.logged_problem(problem, Some(&route.name));
        route.with_lifetime(response.map(ResponseBody::whole))
    }

    /// The response to a problem before anything was executed, counted and logged.
    pub(crate) fn refuse<B>(
        &self,
        problem: Problem,
        (route, notes): (&Route, &Notes),
        operation: Option<&Operation>,
    ) -> Response<ResponseBody<B>> {
        let disposition = Disposition::of_problem(problem.code());
        let response = self.problem(problem, route);
        self.log_request((route, notes), operation, disposition, 0, Some(&response));
        response
    }

    /// The response to a problem, perhaps outside all routes. The log has the same instance.
    pub(crate) fn logged_problem(&self, problem: Problem, route: Option<&str>) -> Response<Bytes> {
        let instance = self.entropy.next_uuid();
        info!(
            target: "justonce::problem", route, code = problem.code().as_str(),
            instance = %instance.urn(),
            "answered with a problem"
        );
        problem.into_response(&self.problems_base, instance)
    }

    /// The response that repeats an outcome. One that an operator gave without a status gets
    /// `without_status`.
    pub(crate) fn replay<B>(
        &self,
        outcome: &Outcome,
        without_status: StatusCode,
        route: &Route,
    ) -> Response<ResponseBody<B>> {
        match replay(outcome, without_status) {
            Ok(response) => route.with_lifetime(response.map(ResponseBody::whole)),
            Err(problem) => self.problem(problem, route),
        }
    }

    /// The response to a duplicate.
    pub(crate) fn existing<B>(
        &self,
        existing: &Existing,
        route: &Route,
    ) -> Response<ResponseBody<B>> {
        let problem = match existing {
            Existing::Completed(held) => return self.replay(&held.outcome, StatusCode::OK, route),
            Existing::Failed(held) => return self.replay(&held.outcome, FAILED, route),
            Existing::Busy(busy) => {
                Problem::new(ProblemCode::InFlight, IN_FLIGHT).retry_after(busy.left)
            }
            Existing::Unknown(_) => unknown_problem(),
            Existing::Mismatch => mismatch_problem(),
            Existing::Expired(_) => Problem::new(ProblemCode::KeyExpired, EXPIRED),
        };
        self.problem(problem, route)
    }

    /// Why a request is not the one that its key was used for. Callers that only their cookies
    /// identify learn nothing about the request of another caller.
    pub(crate) async fn mismatch(&self, operation: &Operation) -> Problem {
        let fingerprint = operation.fingerprint();
        if !has_cookies(&fingerprint) {
            return mismatch_problem();
        }
        let stored = match self.engine.store().get(&operation.id()).await {
            Ok(stored) => stored,
            Err(error) => return not_executed(&error.into()),
        };
        let record = stored.as_ref().and_then(|stored| stored.entry.record());
        match record.map(|record| &record.subject.fingerprint) {
            Some(first) if same_cookies(first, &fingerprint) => mismatch_problem(),
            _ => Problem::new(ProblemCode::CallerDiffers, CALLER_DIFFERS),
        }
    }

    /// Counts and logs a request: with a hash of the key, never the key. The attempt is 0 if
    /// nothing was executed.
    pub(crate) fn log_request<B>(
        &self,
        (route, notes): (&Route, &Notes),
        operation: Option<&Operation>,
        disposition: Disposition,
        attempt: u32,
        response: Option<&Response<B>>,
    ) {
        notes.answered(operation, disposition, attempt);
        route.meters.count(disposition);
        if !tracing::enabled!(target: "justonce::request", Level::INFO) {
            return;
        }
        info!(
            target: "justonce::request",
            route = &*route.name,
            record = operation.map(|operation| tracing::field::display(operation.id())),
            key = operation.map(|operation| tracing::field::debug(operation.key())),
            instance = response.and_then(instance_of).map(tracing::field::display),
            outcome = disposition.label(),
            status = response.map(|response| response.status().as_u16()),
            attempt = Some(attempt).filter(|attempt| *attempt > 0),
            trace_id = notes.trace.map(tracing::field::display),
            "request"
        );
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// The instance of the problem that a response is, as its caller gets it.
pub(crate) fn instance_of<B>(response: &Response<B>) -> Option<uuid::fmt::Urn> {
    response.extensions().get::<Instance>().map(|Instance(name)| name.urn())
}

fn mismatch_problem() -> Problem {
    Problem::new(ProblemCode::KeyMismatch, MISMATCH)
}

pub(crate) fn unknown_problem() -> Problem {
    Problem::new(ProblemCode::OutcomeUnknown, UNKNOWN)
}

/// The problem when the store or the engine failed before anything was executed.
pub(crate) fn not_executed(error: &RunError) -> Problem {
    let (code, detail) = match error {
        RunError::Overloaded { .. } => (ProblemCode::Overloaded, OVERLOADED),
        error => {
            warn!(target: "justonce::store", %error, "the store failed");
            (ProblemCode::StoreUnavailable, STORE_DOWN)
        }
    };
    Problem::new(code, detail).retry_after(RETRY_SOON)
}

const MISMATCH: &str = "This key was used before with a different request. Retries must be equal \
                        to the first try; a new operation needs a new key.";
const CALLER_DIFFERS: &str = "This key was used before, and nothing but its cookies says who sends \
                              this request: they are not those of the first one. Nothing was \
                              executed. Repeat it with the very same cookies.";
const EXPIRED: &str = "The operation with this key is over and its response is no longer kept. If \
                       this is a retry, it comes too late; a new operation needs a new key.";
const IN_FLIGHT: &str = "The first request with this key is still running. Try again later with \
                         the same key, or send 'Prefer: wait=10' to wait for its response.";
const UNKNOWN: &str = "The operation was begun, and it is not known whether it took effect. It is \
                       not executed again until that is resolved. Do not use a new key.";
const STORE_DOWN: &str = "The operation was not executed, because it could not be made certain \
                          that it happens once. Try again later with the same key.";
const OVERLOADED: &str = "The operation was not executed: too many are running. Try again later \
                          with the same key.";
