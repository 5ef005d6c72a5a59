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
    let id = id(route, parts, &caller);
    let admitted = shared.caller_usage.admit_unstored(id, limits);
    let caller = LimitedCaller { shared, route, id, limits };
    admitted.map(Some).map_err(|refusal| caller.problem(refusal))
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
        // First what is known: a duplicate takes no place from a new operation, not even for as
        // long as it is looked up.
        if let Some(existing) = self.known(operation).await.map_err(BeginError::Run)? {
            return self.duplicate(operation, existing).await;
        }
        match self.admit() {
            Ok(admitted) => match begin_at_once(shared, operation).await {
                Ok(Begun::Claimed(claim)) => Ok((Begun::Claimed(claim), Some(admitted))),
                // It was begun since.
                Ok(Begun::Existing(existing)) => {
                    admitted.give_back();
                    self.duplicate(operation, existing).await
                }
                Err(error) => {
                    admitted.give_back();
                    Err(error)
                }
            },
            // It may have been begun since.
            Err(refusal) => match self.known(operation).await {
                Ok(Some(existing)) => self.duplicate(operation, existing).await,
                Ok(None) => Err(BeginError::Refused(self.problem(refusal))),
                Err(error) => Err(BeginError::Refused(not_executed(&error))),
            },
        }
    }

    /// What became of an operation, if it is known.
    async fn known(self, operation: &Operation) -> Result<Option<Existing>, RunError> {
        self.shared.engine.peek(operation).await.map_err(RunError::from)
    }

    /// Answers a duplicate, or waits for the operation that it repeats.
    async fn duplicate(
        self,
        operation: &Operation,
        existing: Existing,
    ) -> Result<(Begun, Option<Admitted>), BeginError> {
        let Self { shared, route, .. } = self;
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
            // Looking it up has stored nothing, and a claim may have lapsed: a begin stores that.
            Existing::Unknown(_) => {
                let begun = shared.engine.begin(operation).await;
                let begun = begun.map_err(|error| BeginError::Refused(not_executed(&error)))?;
                // It may have been released since.
                let admitted = matches!(begun, Begun::Claimed(_))
                    .then(|| shared.caller_usage.force(self.id, self.limits));
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
