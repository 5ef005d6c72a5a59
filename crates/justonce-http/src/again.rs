//! A stored request, sent again without its caller: by a completer, when its owner died.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Empty;
use justonce_core::engine::Begun;
use justonce_core::{Checkpoint, Existing, HeldClaim, OnConcurrent, Operation, UnknownReason};
use tower::Service;

use crate::asked::StoredRequest;
use crate::body::{BoxError, RequestBody};
use crate::detach::Early;
use crate::execute::Execution;
use crate::protect::{Refused, begin};
use crate::routes::{MatchedRoute, Route};
use crate::service::Protected;
use crate::shared::Shared;

/// The body of a request that is sent again: it is there as a whole.
pub type ResentBody = RequestBody<Empty<Bytes>>;

/// What became of a stored request that was to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resent {
    /// The operation has ended, and its answer is stored.
    Ended,
    /// It has not ended: the service was not reached, did not know, or is not tried now.
    NotYet,
    /// Somebody else has it, it has ended meanwhile, or it is unknown.
    Left,
    /// It cannot be sent, for this reason.
    Trouble(String),
}

/// Whether a recovery point is a request that this release can send again.
///
/// # Errors
///
/// The reason why it is not.
pub fn can_resend(point: &Checkpoint) -> Result<(), String> {
    StoredRequest::read(point).map(|_| ())
}

impl<S> Protected<S> {
    /// Sends the stored request of an operation again if nobody drives it any more, by the rules
    /// of its route: with its key, as the next attempt, and its answer is judged and stored as that
    /// of every request. It goes on in a task of its own if the caller leaves.
    ///
    /// The operation is that of a record whose scope names a route of this layer, and whose claim
    /// began with the request ([`Rule::completed`](crate::Rule::completed)).
    pub async fn resend<R>(&self, operation: Operation) -> Resent
    where
        S: Service<Request<ResentBody>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let shared = self.shared();
        let Some(route) = route_of(shared, &operation) else {
            return Resent::Trouble("its route does not complete operations".to_owned());
        };
        let operation = operation.on_concurrent(OnConcurrent::Reject);
        let operation = match route.rule.handler_timeout {
            Some(timeout) => operation.with_handler_timeout(timeout),
            None => operation,
        };
        match begin(shared, &route, &operation).await {
            Ok(Begun::Claimed(claim)) => self.claimed(&route, operation, claim).await,
            Ok(Begun::Existing(_)) => Resent::Left,
            // The service is having a rest, or the store is away.
            Err(Refused::NotNow(_)) => Resent::NotYet,
            Err(Refused::Run(error)) => Resent::Trouble(error.to_string()),
        }
    }

    async fn claimed<R>(
        &self,
        route: &Arc<Route>,
        operation: Operation,
        mut claim: HeldClaim,
    ) -> Resent
    where
        S: Service<Request<ResentBody>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Some(point) = claim.checkpoint() else {
            // It ended and was forgotten since it was found. Nothing was executed.
            let released = claim.release().await;
            return released
                .map_or_else(|error| Resent::Trouble(error.to_string()), |_| Resent::Left);
        };
        let StoredRequest { mut parts, body } = match StoredRequest::read(point) {
            Ok(stored) => stored,
            Err(why) => {
                // Nothing was sent, but an earlier attempt may have been: it must not be freed.
                let _ = claim.abandon(UnknownReason::Reported).await;
                return Resent::Trouble(why);
            }
        };
        parts.extensions.insert(MatchedRoute(Arc::clone(route)));
        let shared = Arc::clone(self.shared());
        let execution = Execution {
            place: shared.room.place(),
            shared: Arc::clone(&shared),
            route: Arc::clone(route),
            operation: operation.clone(),
            service: self.inner().clone(),
            parts,
            body,
        };
        // Nobody waits for the answer. What is under way goes on when the completer is exchanged.
        let early = Early::new();
        let work: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = {
            let work = execution.run::<Empty<Bytes>, R>(claim, early);
            Box::pin(async move { drop(work.await) })
        };
        if tokio::spawn(work).await.is_err() {
            return Resent::Trouble("it panicked".to_owned());
        }
        ended(&shared, &operation).await
    }
}

/// The route that an operation belongs to, if it completes operations.
fn route_of(shared: &Shared, operation: &Operation) -> Option<Arc<Route>> {
    let name = operation.scope().part("route")?;
    let named = |route: &&Arc<Route>| *route.name == *name && route.rule.completed.is_some();
    shared.routes.list.iter().find(named).cloned()
}

/// Whether an operation has ended by now.
async fn ended(shared: &Shared, operation: &Operation) -> Resent {
    match shared.engine.peek(operation).await {
        Ok(Some(Existing::Completed(_) | Existing::Failed(_))) => Resent::Ended,
        Ok(_) => Resent::NotYet,
        Err(error) => Resent::Trouble(error.to_string()),
    }
}
