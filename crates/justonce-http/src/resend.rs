//! Sends a stored request again, without its caller, when its owner died.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Empty;
use justonce_core::engine::Begun;
use justonce_core::{Checkpoint, Existing, HeldClaim, OnConcurrent, Operation, UnknownReason};
use tower::Service;

use crate::begin::{BeginError, begin};
use crate::body::{BoxError, RequestBody};
use crate::detach::{EarlyResponse, Work};
use crate::execute::{Execution, Held};
use crate::report::Notes;
use crate::routes::{MatchedRoute, Route};
use crate::service::Protected;
use crate::shared::Shared;
use crate::stored_request::StoredRequest;

/// The body of a request that is resent.
pub type ResentBody = RequestBody<Empty<Bytes>>;

/// The result of a resend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resent {
    /// The operation has ended, and its outcome is stored.
    Ended,
    /// It has not ended: the service was not reached, did not decide, or is not called now.
    NotEnded,
    /// It was not sent: it has another owner, has ended meanwhile, or is unknown.
    Skipped,
    /// It cannot be sent, for this reason.
    Failed(String),
}

/// Whether a checkpoint is a request that this release can resend.
///
/// # Errors
///
/// The reason why it is not.
pub fn can_resend(checkpoint: &Checkpoint) -> Result<(), String> {
    StoredRequest::decode(checkpoint).map(|_| ())
}

impl<S> Protected<S> {
    /// Resends the stored request of an operation whose owner died. It has the same key, is the
    /// next attempt, and its response is judged and stored like any other. It continues in a task
    /// of its own if the caller leaves.
    ///
    /// The operation is that of a record whose scope names a route of this layer, and whose claim
    /// began with the request ([`Rule::store_requests`](crate::Rule::store_requests)).
    pub async fn resend<R>(&self, operation: Operation) -> Resent
    where
        S: Service<Request<ResentBody>, Response = Response<R>, Future: Send, Error: Send>
            + Clone
            + Send
            + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let shared = &self.shared;
        let Some(route) = route_of(shared, &operation) else {
            return Resent::Failed("its route does not complete operations".to_owned());
        };
        let operation = route.rule.with_timeout(operation.on_concurrent(OnConcurrent::Reject));
        let mut claim = match begin(shared, &route, &operation).await {
            Ok(Begun::Claimed(claim)) => claim,
            Ok(Begun::Existing(_)) => return Resent::Skipped,
            Err(BeginError::Refused(_)) => return Resent::NotEnded,
            Err(BeginError::Run(error)) => return Resent::Failed(error.to_string()),
        };
        let StoredRequest { mut parts, body } = match stored_request(&mut claim).await {
            Ok(stored) => stored,
            Err(resent) => return resent,
        };
        let notes = Notes::of(&parts, &route);
        parts.extensions.insert(MatchedRoute(Arc::clone(&route)));
        let execution = Execution {
            held: Held { _reservation: shared.body_budget.reservation(), admitted: None },
            shared: Arc::clone(shared),
            route,
            operation: operation.clone(),
            service: self.inner.clone(),
            parts,
            body,
            notes,
        };
        let work = execution.run::<Empty<Bytes>, R>(claim, EarlyResponse::new());
        let work: Work<()> = Box::pin(async move {
            drop(work.await);
            None
        });
        // Spawned: what is under way goes on when the completer is replaced.
        if tokio::spawn(work).await.is_err() {
            return Resent::Failed("it panicked".to_owned());
        }
        match shared.engine.peek(&operation).await {
            Ok(Some(Existing::Completed(_) | Existing::Failed(_))) => Resent::Ended,
            Ok(_) => Resent::NotEnded,
            Err(error) => Resent::Failed(error.to_string()),
        }
    }
}

/// The request that is stored with a claim. Without one that can be sent the claim is given up.
async fn stored_request(claim: &mut HeldClaim) -> Result<StoredRequest, Resent> {
    let Some(checkpoint) = claim.checkpoint() else {
        // The operation ended and was forgotten since it was found. Nothing was executed.
        return Err(match claim.release().await {
            Ok(_) => Resent::Skipped,
            Err(error) => Resent::Failed(error.to_string()),
        });
    };
    match StoredRequest::decode(checkpoint) {
        Ok(stored) => Ok(stored),
        Err(why) => {
            // An earlier attempt may have been sent: the key must not be released.
            let _ = claim.abandon(UnknownReason::Reported).await;
            Err(Resent::Failed(why))
        }
    }
}

/// The route of an operation, if it stores requests.
fn route_of(shared: &Shared, operation: &Operation) -> Option<Arc<Route>> {
    let name = operation.scope().part("route")?;
    let stores = |route: &&Arc<Route>| *route.name == *name && route.rule.store_requests.is_some();
    shared.routes.0.iter().find(stores).cloned()
}
