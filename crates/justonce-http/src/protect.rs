//! One protected request: its key and body, its operation, and who answers it.
//!
//! The steps are in [`ProtectedRequest::handle`]. A new operation continues in
//! [`execute`](crate::execute); everything else is answered here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request};
use http_body::Body;
use justonce_core::engine::Begun;
use justonce_core::{
    Checkpoint, Existing, Fingerprint, Key, MAX_CHECKPOINT_BYTES, OnConcurrent, Operation,
    RunError, Scope, StoreErrorKind,
};
use tower::{Service, ServiceExt};

use crate::begin::{BeginError, begin};
use crate::body::{BoxError, RequestBody, ResponseBody, WholeBody};
use crate::caller::{Caller, Identified, RequestHead, scope_problem};
use crate::detach::{Detached, EarlyResponse};
use crate::execute::{CallResult, Execution, Held};
use crate::fingerprint::{canonical, content_key, fingerprint};
use crate::grpc::{self, NotUnary, UnaryBody};
use crate::headers::{OUTCOME, PROBLEM, REPLAYED, STATUS};
use crate::identify::{identified, refused};
use crate::key::{self, BadKey, KeySource};
use crate::limited::{admit_unprotected, begin_limited};
use crate::meters::Disposition;
use crate::problem::{Problem, ProblemCode};
use crate::read::{ReadError, Reservation, drain, read_whole};
use crate::report::Notes;
use crate::routes::{MatchedRoute, Route};
use crate::rule::{BodyMode, KeyPresence, Rule, WhenBusy, WhenStoreDown};
use crate::shared::{RETRY_SOON, Shared, not_executed};
use crate::stored_request::{self, TooLarge};

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// A request on a protected route.
pub(crate) struct ProtectedRequest<S> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) route: Arc<Route>,
    pub(crate) service: S,
    pub(crate) parts: request::Parts,
    pub(crate) notes: Notes,
}

impl<S> ProtectedRequest<S> {
    /// Handles the request. Not an `async fn`, whose arguments are stored in its future twice.
    pub(crate) fn handle<B, R>(
        mut self,
        body: B,
    ) -> impl Future<Output = CallResult<R, S::Error>> + Send
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>, Future: Send, Error: Send>
            + Send
            + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.parts.extensions.insert(MatchedRoute(Arc::clone(&self.route)));
        async move {
            let found = match self.key_of_head() {
                Ok(found) => found,
                // Rare, and large: kept out of the future of every request.
                Err(problem) => return Box::pin(self.refuse_unread(problem, body)).await,
            };
            if found.is_none() && self.has_key_in_head_only() {
                return Box::pin(self.without_key(RequestBody::passed(body))).await;
            }
            if self.route.rule.has_claims()
                && let Err(problem) = Box::pin(self.identify(found.is_some())).await
            {
                return Box::pin(self.refuse_unread(problem, body)).await;
            }
            let limit = self.route.rule.max_request_bytes;
            let mut reservation = self.shared.body_budget.reservation();
            let body = match read(&self.parts, body, limit, &mut reservation).await {
                Ok(body) => body,
                Err(error) => return Ok(self.refuse(unread_problem(&self.route, &error))),
            };
            let key = found.map_or_else(|| self.key_of_body(&body), |key| Ok(Some(key)));
            let operation = match key.and_then(|key| self.operation(key, &body)) {
                Ok(Some(operation)) => operation,
                Ok(None) => return Box::pin(self.without_key(RequestBody::whole(body))).await,
                Err(problem) => return Ok(self.refuse(problem)),
            };
            let begun = match &self.route.rule.caller_limits {
                None => begin(&self.shared, &self.route, &operation).await.map(|one| (one, None)),
                Some(limits) => {
                    let (shared, route) = (&self.shared, &self.route);
                    Box::pin(begin_limited(shared, route, &self.parts, limits, &operation)).await
                }
            };
            match begun {
                Ok((Begun::Claimed(claim), admitted)) => {
                    let Self { shared, route, service, parts, notes } = self;
                    let after_panic = (Arc::clone(&shared), Arc::clone(&route), notes.clone());
                    let held = Held { _reservation: reservation, admitted };
                    let execution =
                        Execution { shared, route, operation, service, parts, body, held, notes };
                    // No await between the claim and here: a caller that leaves must not leave a
                    // claim behind under which nothing was executed.
                    let early = EarlyResponse::new();
                    let work = Box::pin(execution.run(claim, Arc::clone(&early)));
                    let result = Detached::new(work, early).await;
                    result.unwrap_or_else(|| Ok(panicked(&after_panic)))
                }
                Ok((Begun::Existing(Existing::Mismatch), _)) => {
                    Ok(Box::pin(self.mismatch(&operation)).await)
                }
                Ok((Begun::Existing(existing), _)) => Ok(self.existing(&existing, &operation)),
                Err(BeginError::Refused(problem)) => Ok(self.refuse_known(problem, &operation)),
                Err(BeginError::Run(error)) => {
                    Box::pin(self.not_begun(&error, &operation, body)).await
                }
            }
        }
    }

    /// Finds out what the token of the request says of its caller. One that says nothing is refused
    /// at once if the request has a key, otherwise when one is found.
    async fn identify(&mut self, has_key: bool) -> Result<(), Problem> {
        let (rule, parts) = (&self.route.rule, &self.parts);
        let has_key = has_key || rule.key_source == KeySource::Content;
        let found = identified(&self.shared, rule, &parts.headers, &parts.extensions).await;
        if let (Err(refusal), true) = (&found, has_key) {
            return Err(refused(&self.route, *refusal));
        }
        if let Ok(claims) = &found {
            self.parts.extensions.insert(claims.clone());
        }
        self.parts.extensions.insert(Identified(found));
        Ok(())
    }

    fn caller(&self) -> Result<Caller, Problem> {
        if let Some(Identified(Err(refusal))) = self.parts.extensions.get() {
            return Err(refused(&self.route, *refusal));
        }
        let caller = self.route.caller(&RequestHead::of(&self.parts));
        caller.map_err(|error| scope_problem(&error))
    }

    fn has_key_in_head_only(&self) -> bool {
        matches!(self.route.rule.key_source, KeySource::Header(_) | KeySource::Query(_))
    }

    fn key_of_head(&self) -> Result<Option<Key>, Problem> {
        let (rule, parts) = (&self.route.rule, &self.parts);
        let (source, syntax, format) = (&rule.key_source, rule.key_syntax, &rule.key_format);
        key::from_head(source, syntax, format, &parts.headers, &parts.uri).map_err(bad_key)
    }

    fn key_of_body(&self, body: &WholeBody) -> Result<Option<Key>, Problem> {
        let rule = &self.route.rule;
        match &rule.key_source {
            KeySource::Json(pointer) => {
                let data = body.data();
                let data = grpc::compared(&self.parts.headers, &data).unwrap_or(data);
                key::from_body(pointer, &rule.key_format, &data).map_err(bad_key)
            }
            KeySource::Content => {
                let (_, fingerprint) = self.identity(body)?;
                Ok(Some(content_key(&fingerprint)))
            }
            KeySource::Header(_) | KeySource::Query(_) => Ok(None),
        }
    }

    /// The operation of a request with a key.
    fn operation(&self, key: Option<Key>, body: &WholeBody) -> Result<Option<Operation>, Problem> {
        let Some(key) = key else { return Ok(None) };
        let rule = &self.route.rule;
        let (scope, fingerprint) = self.identity(body)?;
        let operation = Operation::new(scope, key, fingerprint)
            .with_policy(Arc::clone(&rule.policy))
            .on_concurrent(on_concurrent(rule, &self.parts.headers));
        let operation = match &rule.store_requests {
            None => operation,
            Some(without) => operation.starting_from(self.stored_request(body, without)?),
        };
        Ok(Some(rule.with_timeout(operation)))
    }

    /// The scope and the fingerprint of the request.
    fn identity(&self, body: &WholeBody) -> Result<(Scope, Fingerprint), Problem> {
        let (rule, parts) = (&self.route.rule, &self.parts);
        let caller = self.caller()?;
        let data = body.data();
        let message = grpc::is_call(parts).then(|| grpc::compared(&parts.headers, &data));
        let (mode, data) = match message {
            None => (&rule.fingerprint.body, data),
            Some(Some(message)) => (&rule.fingerprint.body, message),
            // What is not JSON is compared byte by byte, if at all.
            Some(None) if rule.fingerprint.body == BodyMode::Ignored => (&BodyMode::Ignored, data),
            Some(None) => (&BodyMode::Raw, data),
        };
        let canonical = canonical(mode, &data);
        let fingerprint = fingerprint(rule, &caller, parts, &canonical);
        Ok((caller.scope, fingerprint))
    }

    fn stored_request(
        &self,
        body: &WholeBody,
        without: &[HeaderName],
    ) -> Result<Checkpoint, Problem> {
        let stored = match &self.shared.map_stored_request {
            None => stored_request::encode(&self.parts, body, without),
            Some(map) => {
                let mut parts = self.parts.clone();
                map(&mut parts);
                stored_request::encode(&parts, body, without)
            }
        };
        stored.map_err(|TooLarge| {
            let detail = format!(
                "The request with its headers is over {MAX_CHECKPOINT_BYTES} bytes, and this \
                 route stores requests."
            );
            Problem::new(ProblemCode::BodyTooLarge, detail)
        })
    }

    fn existing<R>(&self, existing: &Existing, operation: &Operation) -> Response<ResponseBody<R>> {
        let response = self.shared.existing(existing, &self.route);
        if let (Existing::Unknown(_), Some(listener)) = (existing, &self.shared.unknown_listener) {
            listener.on_unknown(&self.route.name, operation.id());
        }
        let disposition = Disposition::of_existing(existing);
        let of = (&*self.route, &self.notes);
        self.shared.log_request(of, Some(operation), disposition, 0, Some(&response));
        response
    }

    async fn mismatch<R>(self, operation: &Operation) -> Response<ResponseBody<R>> {
        let problem = self.shared.mismatch(operation).await;
        self.refuse_known(problem, operation)
    }

    fn refuse<R>(&self, problem: Problem) -> Response<ResponseBody<R>> {
        self.shared.refuse(problem, (&*self.route, &self.notes), None)
    }

    /// The same for a request whose operation has a name by now, which the logs tell.
    fn refuse_known<R>(
        &self,
        problem: Problem,
        operation: &Operation,
    ) -> Response<ResponseBody<R>> {
        self.shared.refuse(problem, (&*self.route, &self.notes), Some(operation))
    }

    async fn refuse_unread<B, R>(self, problem: Problem, body: B) -> CallResult<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        drain(&self.parts.headers, body).await;
        Ok(self.refuse(problem))
    }

    /// Nothing was claimed: the request is refused, or passes without protection.
    async fn not_begun<B, R>(
        self,
        error: &RunError,
        operation: &Operation,
        body: WholeBody,
    ) -> CallResult<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        if !is_store_down(error) || self.route.rule.when_store_down == WhenStoreDown::Refuse {
            return Ok(self.refuse_known(not_executed(error), operation));
        }
        tracing::warn!(target: "justonce::store", %error, "the store failed: passed unprotected");
        self.pass(RequestBody::whole(body)).await
    }

    async fn without_key<B, R>(self, body: RequestBody<B>) -> CallResult<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        if self.route.rule.key_presence == KeyPresence::Required {
            drain(&self.parts.headers, body).await;
            return Ok(self.refuse(missing_key(&self.route.rule.key_source)));
        }
        self.pass(body).await
    }

    async fn pass<B, R>(mut self, body: RequestBody<B>) -> CallResult<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let rule = &self.route.rule;
        if rule.caller_limits.is_some() && rule.has_claims() {
            // Without a key it needs no valid token: then it counts for its address.
            let _ = self.identify(false).await;
        }
        // It counts as running until its response begins.
        let _admitted = match admit_unprotected(&self.shared, &self.route, &self.parts) {
            Ok(admitted) => admitted,
            Err(problem) => {
                drain(&self.parts.headers, body).await;
                return Ok(self.refuse(problem));
            }
        };
        let request = Request::from_parts(self.parts, body);
        let mut response = self.service.oneshot(request).await?.map(ResponseBody::unprotected);
        let disposition = Disposition::Unprotected;
        let of = (&*self.route, &self.notes);
        self.shared.log_request(of, None, disposition, 0, Some(&response));
        let headers = response.headers_mut();
        headers.remove(OUTCOME);
        headers.remove(REPLAYED);
        headers.remove(PROBLEM);
        headers.insert(STATUS, HeaderValue::from_static("unprotected"));
        Ok(self.route.with_lifetime(response))
    }
}

/// Reads a body whole. That of a call is refused as soon as it is clear that it is a stream.
fn read<'r, B>(
    parts: &'r request::Parts,
    body: B,
    limit: usize,
    reservation: &'r mut Reservation,
) -> impl Future<Output = Result<WholeBody, ReadError>> + Send + 'r
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'r,
{
    let headers = &parts.headers;
    match grpc::is_call(parts) {
        false => Either::Left(read_whole(headers, body, limit, reservation)),
        // Rare, and large: kept out of the future of every request.
        true => {
            let body = UnaryBody::new(body);
            Either::Right(Box::pin(read_whole(headers, body, limit, reservation)))
        }
    }
}

/// Whether the store cannot be reached. A record that cannot be read is something else: its
/// operation may be done.
const fn is_store_down(error: &RunError) -> bool {
    match error {
        RunError::Store(error) => {
            !matches!(error.kind(), StoreErrorKind::Damaged | StoreErrorKind::Protocol)
        }
        _ => false,
    }
}

/// How long a duplicate waits, by the route or the caller's `Prefer`. One that waits executes the
/// operation itself if its owner releases it.
fn on_concurrent(rule: &Rule, headers: &HeaderMap) -> OnConcurrent {
    let wait = match (preferred_wait(headers), rule.when_busy) {
        (Some(preferred), _) => preferred.min(rule.max_wait),
        (None, WhenBusy::Wait(time)) => time,
        (None, WhenBusy::Reject) => Duration::ZERO,
    };
    if wait.is_zero() { OnConcurrent::Reject } else { OnConcurrent::Cooperate(wait) }
}

/// The time of `Prefer: wait=10` (RFC 7240), if it is valid.
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(PREFER).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        let seconds = value.trim().trim_matches('"').parse().ok().filter(|_| is_wait)?;
        Some(Duration::from_secs(seconds))
    })
}

fn missing_key(source: &KeySource) -> Problem {
    let place = match source {
        KeySource::Header(name) => format!("send the header {}", key::header_words(name)),
        KeySource::Json(pointer) => {
            format!("send a JSON body with a string or number at {pointer}")
        }
        KeySource::Query(name) => format!("add the query parameter {name}"),
        // A request always has content.
        KeySource::Content => "send a body".to_owned(),
    };
    let detail = format!(
        "This route requires an idempotency key: {place}, with a value that is new for every \
         operation and the same for its retries."
    );
    Problem::new(ProblemCode::KeyMissing, detail)
}

fn bad_key(why: BadKey) -> Problem {
    Problem::new(ProblemCode::KeyInvalid, why.to_string())
}

fn unread_problem(route: &Route, error: &ReadError) -> Problem {
    match error {
        ReadError::TooLarge => Problem::new(
            ProblemCode::BodyTooLarge,
            format!("The body is over {} bytes.", route.rule.max_request_bytes),
        ),
        ReadError::OverBudget => {
            Problem::new(ProblemCode::Overloaded, OVER_BUDGET).retry_after(RETRY_SOON)
        }
        ReadError::Incomplete(error) if error.is::<NotUnary>() => {
            Problem::new(ProblemCode::RequestInvalid, error.to_string())
        }
        ReadError::Incomplete(error) => {
            tracing::info!(target: "justonce::request", %error, "the body did not arrive whole");
            let detail = "The body did not arrive whole. Nothing was executed.";
            Problem::new(ProblemCode::BodyIncomplete, detail)
        }
    }
}

fn panicked<R>(
    (shared, route, notes): &(Arc<Shared>, Arc<Route>, Notes),
) -> Response<ResponseBody<R>> {
    tracing::error!(target: "justonce::request", route = &*route.name, "the service panicked");
    let problem = Problem::new(ProblemCode::UpstreamFailed, PANICKED);
    let response = shared.problem(problem.status(StatusCode::INTERNAL_SERVER_ERROR), route);
    shared.log_request((route, notes), None, Disposition::Abandoned, 0, Some(&response));
    response
}

const OVER_BUDGET: &str = "The operation was not executed: too many large bodies are being \
                           received. Try again later with the same key.";
const PANICKED: &str = "The service crashed. The operation may have taken effect. Repeat the \
                        request with the same key, never with a new one.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_read_as_rfc_7240_writes_them() {
        let preferred = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(PREFER, value.parse().unwrap());
            preferred_wait(&headers).map(|time| time.as_secs())
        };
        assert_eq!(preferred("wait=10"), Some(10));
        assert_eq!(preferred("respond-async, wait=5"), Some(5));
        assert_eq!(preferred("WAIT = \"7\"; foo=1"), Some(7));
        assert_eq!(preferred("wait=soon"), None);
        assert_eq!(preferred("wait"), None);
    }
}
