//! Begins operations within the limits of their callers.
//!
//! Limits are about new operations. A duplicate of an operation that is known to the store gets
//! what it would get without limits: refusing it would not spare the service anything, and a client
//! that cannot learn the outcome is tempted to use a new key.

use http::request;
use justonce_core::engine::Begun;
use justonce_core::{Existing, OnConcurrent, Operation, Outcome, Ran, RunError};
use serde_json::json;

use crate::begin::{BeginError, begin, begin_at_once, blocked, wait_and_begin};
use crate::caller::{Caller, RequestHead, scope_problem};
use crate::caller_limits::{Admitted, CallerId, CallerLimits, Refusal};
use crate::client::ClientAddress;
use crate::problem::{Problem, ProblemCode};
use crate::routes::Route;
use crate::shared::{Shared, not_executed};

/// What a record takes in a store beside its outcome, in bytes, as it is counted for the limit of a
/// caller: its names, its times and its timeline.
const RECORD_BYTES: u64 = 512;

/// Begins an operation on a route that limits its callers.
pub(crate) async fn begin_limited(
    shared: &Shared,
    route: &Route,
    parts: &request::Parts,
    limits: &CallerLimits,
    operation: &Operation,
) -> Result<(Begun, Option<Admitted>), BeginError> {
    let caller = caller(route, parts).map_err(BeginError::Refused)?;
    let id = id(route, parts, &caller);
    LimitedCaller { shared, route, id, limits }.begin(operation).await
}

/// Admits a request that passes without protection, where callers are limited.
pub(crate) fn admit_unprotected(
    shared: &Shared,
    route: &Route,
    parts: &request::Parts,
) -> Result<Option<Admitted>, Problem> {
    let Some(limits) = &route.rule.caller_limits else { return Ok(None) };
    let caller = caller(route, parts)?;
    let limits = &limits.without_stored();
    let caller = LimitedCaller { shared, route, id: id(route, parts, &caller), limits };
    caller.admit().map(Some).map_err(|refusal| caller.problem(refusal))
}

fn caller(route: &Route, parts: &request::Parts) -> Result<Caller, Problem> {
    route.caller(&RequestHead::of(parts)).map_err(|error| scope_problem(&error))
}

/// What a caller is counted under.
fn id<'a>(route: &'a Route, parts: &request::Parts, caller: &'a Caller) -> CallerId<'a> {
    match &caller.limited_as {
        Some(hash) => CallerId::Known(hash),
        None => {
            let address = parts.extensions.get().map(|ClientAddress(address)| *address);
            CallerId::Address(&route.name, address)
        }
    }
}

/// The caller of a request, and its limits.
#[derive(Clone, Copy)]
struct LimitedCaller<'a> {
    shared: &'a Shared,
    route: &'a Route,
    id: CallerId<'a>,
    limits: &'a CallerLimits,
}

impl LimitedCaller<'_> {
    /// Claims an operation within the limits, or finds what became of it.
    async fn begin(self, operation: &Operation) -> Result<(Begun, Option<Admitted>), BeginError> {
        let Self { shared, route, .. } = self;
        if blocked(shared, route).is_some() {
            // Nothing is claimed then. It may be over in this moment: then this one is not counted.
            return begin(shared, route, operation).await.map(|begun| (begun, None));
        }
        let existing = match self.admit() {
            Ok(admitted) => match begin_at_once(shared, operation).await {
                Ok(Begun::Claimed(claim)) => return Ok((Begun::Claimed(claim), Some(admitted))),
                Ok(Begun::Existing(existing)) => {
                    admitted.give_back();
                    existing
                }
                Err(error) => {
                    admitted.give_back();
                    return Err(error);
                }
            },
            Err(refusal) => match shared.engine.peek(operation).await {
                Ok(Some(existing)) => existing,
                Ok(None) => return Err(BeginError::Refused(self.problem(refusal))),
                Err(error) => return Err(BeginError::Refused(not_executed(&error.into()))),
            },
        };
        match existing {
            Existing::Busy(busy) if operation.concurrent_rule() != OnConcurrent::Reject => {
                let begun = Box::pin(wait_and_begin(shared, route, operation, busy)).await?;
                // It takes the place of the one it waited for, which has ended.
                let admitted = match &begun {
                    Begun::Claimed(_) => Some(shared.caller_usage.force(self.id, self.limits)),
                    Begun::Existing(_) => None,
                };
                Ok((begun, admitted))
            }
            existing => Ok((Begun::Existing(existing), None)),
        }
    }

    fn admit(self) -> Result<Admitted, Refusal> {
        self.shared.caller_usage.admit(self.id, self.limits)
    }

    fn problem(self, refusal: Refusal) -> Problem {
        self.route.meters.count_limited(refusal.limit);
        Problem::new(ProblemCode::LimitReached, LIMIT_REACHED)
            .with("limit", json!(refusal.limit.as_str()))
            .retry_after(refusal.retry_after)
    }
}

/// How many bytes of an operation that ended this way are stored, before compression.
pub(crate) fn stored_bytes(ran: &Result<Ran, RunError>) -> u64 {
    match ran {
        Ok(Ran::Executed(outcome) | Ran::Failed(outcome) | Ran::Unclassified(outcome)) => {
            RECORD_BYTES.saturating_add(outcome_bytes(outcome))
        }
        Ok(Ran::Abandoned(_)) | Err(_) => RECORD_BYTES,
        // Nothing of it is stored, or it counts for another.
        Ok(_) => 0,
    }
}

fn outcome_bytes(outcome: &Outcome) -> u64 {
    let headers = outcome.headers().iter();
    let headers: usize = headers.map(|header| header.name.len() + header.value.len()).sum();
    let body = outcome.body().map_or(0, <[u8]>::len);
    u64::try_from(headers.saturating_add(body)).unwrap_or(u64::MAX)
}

const LIMIT_REACHED: &str = "This caller has reached a limit of this route. The operation was not \
                             executed. Try again later with the same key.";
