//! Begins an operation: claims it, or finds what became of it.

use std::time::Duration;

use http::StatusCode;
use justonce_core::engine::Begun;
use justonce_core::{Busy, Existing, OnConcurrent, Operation, RunError};
use tokio::time::Instant;

use crate::problem::{Problem, ProblemCode};
use crate::routes::Route;
use crate::shared::{Shared, not_executed};

/// Claims the operation, or finds what became of it. Not an `async fn`, whose arguments are stored
/// in its future twice.
pub(crate) fn begin<'a>(
    shared: &'a Shared,
    route: &'a Route,
    operation: &'a Operation,
) -> impl Future<Output = Result<Begun, BeginError>> + Send + 'a {
    let blocked = blocked(shared, route);
    async move {
        if let Some(time) = blocked {
            return match shared.engine.peek(operation).await {
                Ok(Some(existing)) => Ok(Begun::Existing(existing)),
                Ok(None) => Err(BeginError::Refused(blocked_problem(time))),
                Err(error) => Err(BeginError::Refused(not_executed(&error.into()))),
            };
        }
        match begin_at_once(shared, operation).await? {
            Begun::Existing(Existing::Busy(busy))
                if operation.concurrent_rule() != OnConcurrent::Reject =>
            {
                Box::pin(wait_and_begin(shared, route, operation, busy)).await
            }
            begun => Ok(begun),
        }
    }
}

/// How long new operations are blocked; `None` if they are not.
pub(crate) fn blocked(shared: &Shared, route: &Route) -> Option<Duration> {
    shared.circuit_breaker.as_ref().and_then(|breaker| breaker.open_for(&route.name))
}

/// The same without waiting for the claim of another caller.
pub(crate) async fn begin_at_once(
    shared: &Shared,
    operation: &Operation,
) -> Result<Begun, BeginError> {
    shared.engine.begin(operation).await.map_err(BeginError::Run)
}

/// Waits until the claim of another caller ends.
pub(crate) async fn wait_and_begin(
    shared: &Shared,
    route: &Route,
    operation: &Operation,
    busy: Busy,
) -> Result<Begun, BeginError> {
    let meters = &route.meters;
    meters.concurrent.increment(1);
    let _waiting = Waiting::new(&meters.waiters);
    let start = Instant::now();
    let begun = shared.engine.wait_and_begin(operation, busy).await;
    meters.lock_wait.record(start.elapsed().as_secs_f64());
    // The operation is known to run: it must not pass unprotected if the store fails now.
    begun.map_err(|error| BeginError::Refused(not_executed(&error)))
}

/// Why nothing was begun.
pub(crate) enum BeginError {
    /// The request must be refused.
    Refused(Problem),
    /// The store or the engine failed: the request may pass unprotected.
    Run(RunError),
}

/// Counts a waiting duplicate until it is dropped.
struct Waiting<'a>(&'a metrics::Gauge);

impl<'a> Waiting<'a> {
    fn new(gauge: &'a metrics::Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

fn blocked_problem(time: Duration) -> Problem {
    Problem::new(ProblemCode::UpstreamUnreachable, BLOCKED)
        .status(StatusCode::SERVICE_UNAVAILABLE)
        .retry_after(time)
}

const BLOCKED: &str = "The service is known to be down at the moment. The operation was not \
                       executed. Try again later with the same key.";
