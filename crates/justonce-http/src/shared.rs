//! What all requests through one layer share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use justonce_core::{Busy, Engine, Entropy, Existing, Operation, Outcome, RecordId, RunError};
use tracing::{Level, info, warn};

use crate::body::ResponseBody;
use crate::cause::Instance;
use crate::execute::Saw;
use crate::fate::Fate;
use crate::headers::LIFETIME;
use crate::meters::Meters;
use crate::problem::{Problem, ProblemCode};
use crate::room::Room;
use crate::routes::{Route, Routes};
use crate::same;
use crate::stored::replay;

/// How soon to try again when the store or a place was not to be had.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The status of a failure that came without one.
pub(crate) const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

/// Somebody who knows that executing makes no sense at the moment: a circuit breaker.
///
/// While it is closed, replays are still answered, and new operations get 503 without a claim.
pub trait Gate: Send + Sync + 'static {
    /// How long it will be closed; nothing while it is open.
    fn closed_for(&self) -> Option<Duration>;
}

/// Somebody who can do something about unknown operations: a prober.
pub trait MetUnknown: Send + Sync + 'static {
    /// A duplicate met an unknown operation of this route, so somebody waits for it. It must not
    /// block.
    fn met_unknown(&self, route: &str, id: RecordId);
}

/// Changes the head of a request before it is stored.
pub(crate) type StoredAs = Arc<dyn Fn(&mut http::request::Parts) + Send + Sync>;

/// What all requests through one layer share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) routes: Routes,
    pub(crate) gate: Option<Arc<dyn Gate>>,
    pub(crate) met_unknown: Option<Arc<dyn MetUnknown>>,
    pub(crate) stored_as: Option<StoredAs>,
    /// Where the pages of the problems are, before their path.
    pub(crate) base: Box<str>,
    pub(crate) entropy: Entropy,
    /// For the bodies of all requests.
    pub(crate) room: Room,
}

impl Shared {
    pub(crate) fn meters<'a>(&self, route: &'a Route) -> &'a Meters {
        &route.meters
    }

    /// Says how long answers of this route are replayed.
    pub(crate) fn with_lifetime<B>(&self, mut response: Response<B>, route: &Route) -> Response<B> {
        response.headers_mut().insert(LIFETIME, route.lifetime.clone());
        response
    }

    /// The answer to a problem. The log knows it by the same name.
    pub(crate) fn problem<B>(&self, problem: Problem, route: &Route) -> Response<ResponseBody<B>> {
        let response = self.described(problem, Some(&route.name));
        self.with_lifetime(response.map(ResponseBody::whole), route)
    }

    /// The same without a promise, and perhaps outside all routes.
    pub(crate) fn described(&self, problem: Problem, route: Option<&str>) -> Response<Bytes> {
        let instance = self.entropy.next_uuid();
        info!(
            target: "justonce::problem", route, code = problem.code().as_str(),
            instance = %instance.urn(),
            "answered with a problem"
        );
        problem.into_response(&self.base, instance)
    }

    /// The answer that repeats an outcome. Outcomes of this layer have a status; one that an
    /// operator gave without it gets `without_status`.
    pub(crate) fn replay<B>(
        &self,
        outcome: &Outcome,
        without_status: StatusCode,
        route: &Route,
    ) -> Response<ResponseBody<B>> {
        match replay(outcome, without_status) {
            Ok(response) => self.with_lifetime(response.map(ResponseBody::whole), route),
            Err(problem) => self.problem(problem, route),
        }
    }

    /// The answer to a duplicate.
    pub(crate) fn existing<B>(
        &self,
        existing: &Existing,
        route: &Route,
    ) -> Response<ResponseBody<B>> {
        let problem = match existing {
            Existing::Completed(held) => return self.replay(&held.outcome, StatusCode::OK, route),
            Existing::Failed(held) => return self.replay(&held.outcome, FAILED, route),
            Existing::Busy(busy) => in_flight(*busy),
            Existing::Unknown(_) => self.unknown(),
            Existing::Mismatch => Problem::new(ProblemCode::KeyMismatch, MISMATCH),
            Existing::Expired(_) => Problem::new(ProblemCode::KeyExpired, EXPIRED),
        };
        self.problem(problem, route)
    }

    /// Why a request is not the one that its key was used for. A caller who is known by cookies
    /// only hears nothing of what another one asked, not even whether it was the same.
    pub(crate) async fn mismatch(&self, operation: &Operation) -> Problem {
        let asked = operation.fingerprint();
        let mismatch = || Problem::new(ProblemCode::KeyMismatch, MISMATCH);
        if !same::names_cookies(&asked) {
            return mismatch();
        }
        let stored = match self.engine.store().get(&operation.id()).await {
            Ok(stored) => stored,
            Err(error) => return self.not_executed(&error.into()),
        };
        let record = stored.as_ref().and_then(|stored| stored.entry.record());
        match record.map(|record| &record.subject.fingerprint) {
            Some(first) if same::same_cookies(first, &asked) => mismatch(),
            _ => Problem::new(ProblemCode::CallerDiffers, CALLER_DIFFERS),
        }
    }

    pub(crate) fn unknown(&self) -> Problem {
        Problem::new(ProblemCode::OutcomeUnknown, UNKNOWN)
    }

    /// The answer when nothing could be executed.
    pub(crate) fn not_executed(&self, error: &RunError) -> Problem {
        match error {
            RunError::Overloaded { .. } => {
                Problem::new(ProblemCode::Overloaded, OVERLOADED).retry_after(TRY_AGAIN)
            }
            error => {
                warn!(target: "justonce::store", %error, "the store failed");
                Problem::new(ProblemCode::StoreUnavailable, STORE_DOWN).retry_after(TRY_AGAIN)
            }
        }
    }

    pub(crate) fn gate_closed(&self, time: Duration) -> Problem {
        Problem::new(ProblemCode::UpstreamUnreachable, GATE_CLOSED)
            .status(StatusCode::SERVICE_UNAVAILABLE)
            .retry_after(time)
    }

    /// Counts a request and writes its line of the log: a hash of the key, never the key.
    pub(crate) fn tell(
        &self,
        route: &Route,
        operation: Option<&Operation>,
        fate: Fate,
        status: Option<StatusCode>,
        (attempt, instance): (u32, Option<Instance>),
    ) {
        route.meters.count(fate);
        if !tracing::enabled!(target: "justonce::request", Level::INFO) {
            return;
        }
        info!(
            target: "justonce::request",
            route = &*route.name,
            record = operation.map(|operation| tracing::field::display(operation.id())),
            key = operation.map(|operation| tracing::field::debug(operation.key())),
            instance = instance.map(|Instance(name)| tracing::field::display(name.urn())),
            outcome = fate.label(),
            status = status.map(|status| status.as_u16()),
            attempt = Some(attempt).filter(|attempt| *attempt > 0),
            "request"
        );
    }
}

impl Shared {
    /// The line about an operation of ours that may have taken effect. The record is named as the
    /// command line names it, the instance as the caller knows it.
    pub(crate) fn tell_abandoned(
        &self,
        route: &Route,
        operation: &Operation,
        saw: &Saw,
        (took, instance): (Duration, Option<Instance>),
    ) {
        warn!(
            target: "justonce::unknown",
            route = &*route.name,
            record = %operation.id(),
            key = ?operation.key(),
            instance = instance.map(|Instance(name)| tracing::field::display(name.urn())),
            upstream = saw.upstream.as_ref().map(|by| &*by.0),
            status = saw.status,
            cause = saw.cause.as_deref(),
            owner = self.engine.owner().as_str(),
            duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "an operation may have taken effect"
        );
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("engine", &self.engine).finish_non_exhaustive()
    }
}

fn in_flight(busy: Busy) -> Problem {
    Problem::new(ProblemCode::InFlight, IN_FLIGHT).retry_after(busy.left)
}

/// The value of the header on unprotected answers.
pub(crate) const UNPROTECTED: HeaderValue = HeaderValue::from_static("unprotected");

const MISMATCH: &str = "This key was used before with a different request. Retries must be equal \
                        to the first try; a new operation needs a new key.";
const CALLER_DIFFERS: &str = "This key was used before, and nothing but its cookies says who sends \
                              this request: they are not those of the first one. Nothing was \
                              executed. Repeat it with the very same cookies.";
const EXPIRED: &str = "The operation with this key is over and its answer is no longer kept. If \
                       this is a retry, it comes too late; a new operation needs a new key.";
const IN_FLIGHT: &str = "The first request with this key is still running. Try again later with \
                         the same key, or send 'Prefer: wait=10' to wait for its answer.";
const UNKNOWN: &str = "The operation was begun, and it is not known whether it took effect. It is \
                       not executed again until that is resolved. Do not use a new key.";
const STORE_DOWN: &str = "The operation was not executed, because it could not be made certain \
                          that it happens once. Try again later with the same key.";
const OVERLOADED: &str = "The operation was not executed: too many are running. Try again later \
                          with the same key.";
const GATE_CLOSED: &str = "The service is known to be down at the moment. The operation was not \
                           executed. Try again later with the same key.";
