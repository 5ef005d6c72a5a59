//! One protected request, from its key to its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Response, StatusCode, request};
use http_body::Body;
use justonce_core::engine::Begun;
use justonce_core::{
    Busy, Checkpoint, Existing, Fingerprint, Key, MAX_CHECKPOINT_BYTES, OnConcurrent, Operation,
    RunError, Scope, StoreErrorKind,
};
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use crate::asked::{self, TooLarge};
use crate::body::{BoxError, RequestBody, ResponseBody, WholeBody};
use crate::caller::scopeless;
use crate::detach::{Detached, Early, Panicked};
use crate::execute::{Answer, Execution, instance_of};
use crate::fate::Fate;
use crate::headers::{OUTCOME, REPLAYED, STATUS};
use crate::key::{self, BadKey, KeySource};
use crate::prefer::on_concurrent;
use crate::problem::{Problem, ProblemCode};
use crate::read::{Unread, read_whole, swallow};
use crate::routes::{MatchedRoute, Route};
use crate::rule::{KeyPresence, WhenStoreDown};
use crate::same;
use crate::shared::{Shared, TRY_AGAIN, UNPROTECTED};

/// A request that falls under a route.
pub(crate) struct Request<S> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) route: Arc<Route>,
    pub(crate) service: S,
    pub(crate) parts: request::Parts,
}

impl<S> Request<S> {
    /// The whole way of a request. Not an `async fn`, whose arguments lie in its future twice.
    pub(crate) fn answer<B, R>(
        mut self,
        body: B,
    ) -> impl Future<Output = Answer<R, S::Error>> + Send
    where
        S: Service<http::Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        self.parts.extensions.insert(MatchedRoute(Arc::clone(&self.route)));
        async move {
            let found = match self.key_of_head() {
                Ok(found) => found,
                // Rare, and large: kept out of the future of every request.
                Err(problem) => return Box::pin(self.refuse_unread(problem, body)).await,
            };
            if found.is_none() && !self.route.rule.key_source.needs_body() {
                return Box::pin(self.without_key(RequestBody::passed(body))).await;
            }
            let limit = self.route.rule.max_request_bytes;
            let mut place = self.shared.room.place();
            let body = match read_whole(&self.parts.headers, body, limit, &mut place).await {
                Ok(body) => body,
                Err(unread) => return Ok(self.refuse(unread_problem(&self.route, &unread))),
            };
            let key = match found.map_or_else(|| self.key_of_body(&body), |key| Ok(Some(key))) {
                Ok(Some(key)) => key,
                Ok(None) => return Box::pin(self.without_key(RequestBody::whole(body))).await,
                Err(problem) => return Ok(self.refuse(problem)),
            };
            let operation = match self.operation(key, &body) {
                Ok(operation) => operation,
                Err(problem) => return Ok(self.refuse(problem)),
            };
            match begin(&self.shared, &self.route, &operation).await {
                Ok(Begun::Claimed(claim)) => {
                    let Self { shared, route, service, parts } = self;
                    let told = (Arc::clone(&shared), Arc::clone(&route));
                    let early = Early::new();
                    let execution =
                        Execution { shared, route, operation, service, parts, body, place };
                    // No await between the claim and here: a caller that leaves cannot leave a
                    // claim behind under which nothing was executed.
                    let work = Box::pin(execution.run(claim, early.clone()));
                    match Detached::new(work, early).await {
                        Ok(answer) => answer,
                        Err(Panicked) => Ok(panicked(&told.0, &told.1)),
                    }
                }
                Ok(Begun::Existing(Existing::Mismatch)) => {
                    Ok(Box::pin(self.mismatch(&operation)).await)
                }
                Ok(Begun::Existing(existing)) => Ok(self.existing(&existing, &operation)),
                Err(Refused::NotNow(problem)) => Ok(self.refuse(problem)),
                Err(Refused::Run(error)) => Box::pin(self.not_begun(&error, body)).await,
            }
        }
    }

    fn key_of_head(&self) -> Result<Option<Key>, Problem> {
        let rule = &self.route.rule;
        let parts = &self.parts;
        key::from_head(
            &rule.key_source,
            rule.key_syntax,
            &rule.key_format,
            &parts.headers,
            &parts.uri,
        )
        .map_err(bad_key)
    }

    fn key_of_body(&self, body: &WholeBody) -> Result<Option<Key>, Problem> {
        let rule = &self.route.rule;
        match &rule.key_source {
            KeySource::Json(pointer) => {
                key::from_body(pointer, &rule.key_format, &body.data()).map_err(bad_key)
            }
            KeySource::Content => {
                let (_, fingerprint) = self.asked(body)?;
                Ok(Some(same::content_key(&fingerprint)))
            }
            KeySource::Header(_) | KeySource::Query(_) => Ok(None),
        }
    }

    fn operation(&self, key: Key, body: &WholeBody) -> Result<Operation, Problem> {
        let rule = &self.route.rule;
        let (scope, fingerprint) = self.asked(body)?;
        let operation = Operation::new(scope, key, fingerprint)
            .with_policy(Arc::clone(&rule.policy))
            .on_concurrent(on_concurrent(rule, &self.parts.headers));
        let operation = match &rule.completed {
            None => operation,
            Some(without) => operation.starting_from(self.stored(body, without)?),
        };
        Ok(match rule.handler_timeout {
            Some(timeout) => operation.with_handler_timeout(timeout),
            None => operation,
        })
    }

    /// The request as it is stored with the claim.
    fn stored(&self, body: &WholeBody, without: &[HeaderName]) -> Result<Checkpoint, Problem> {
        let stored = match &self.shared.stored_as {
            None => asked::point(&self.parts, body, without),
            Some(changed) => {
                let mut parts = self.parts.clone();
                changed(&mut parts);
                asked::point(&parts, body, without)
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

    /// Who asks, and what.
    fn asked(&self, body: &WholeBody) -> Result<(Scope, Fingerprint), Problem> {
        let rule = &self.route.rule;
        let parts = &self.parts;
        let caller =
            self.route.caller(&parts.method, &parts.headers).map_err(|error| scopeless(&error))?;
        let data = body.data();
        let canonical = same::canonical(&rule.fingerprint.body, &data);
        let fingerprint = same::fingerprint(rule, &caller, parts, &canonical);
        Ok((caller.scope, fingerprint))
    }

    fn existing<R>(&self, existing: &Existing, operation: &Operation) -> Response<ResponseBody<R>> {
        let response = self.shared.existing(existing, &self.route);
        if let (Existing::Unknown(_), Some(listener)) = (existing, &self.shared.met_unknown) {
            listener.met_unknown(&self.route.name, operation.id());
        }
        let fate = Fate::of_existing(existing);
        let told = (0, instance_of(&response));
        self.shared.tell(&self.route, Some(operation), fate, Some(response.status()), told);
        response
    }

    /// The key was used before, by another caller or for something else.
    async fn mismatch<R>(self, operation: &Operation) -> Response<ResponseBody<R>> {
        let problem = self.shared.mismatch(operation).await;
        let fate = Fate::of_problem(problem.code());
        let response = self.shared.problem(problem, &self.route);
        let told = (0, instance_of(&response));
        self.shared.tell(&self.route, Some(operation), fate, Some(response.status()), told);
        response
    }

    async fn refuse_unread<B, R>(self, problem: Problem, body: B) -> Answer<R, S::Error>
    where
        S: Service<http::Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
    {
        swallow(&self.parts.headers, body).await;
        Ok(self.refuse(problem))
    }

    fn refuse<R>(&self, problem: Problem) -> Response<ResponseBody<R>> {
        let fate = Fate::of_problem(problem.code());
        let response = self.shared.problem(problem, &self.route);
        let told = (0, instance_of(&response));
        self.shared.tell(&self.route, None, fate, Some(response.status()), told);
        response
    }

    /// Nothing was claimed: the request is refused, or passes without protection.
    async fn not_begun<B, R>(self, error: &RunError, body: WholeBody) -> Answer<R, S::Error>
    where
        S: Service<http::Request<RequestBody<B>>, Response = Response<R>>,
    {
        if !is_down(error) || self.route.rule.when_store_down == WhenStoreDown::Refuse {
            return Ok(self.refuse(self.shared.not_executed(error)));
        }
        tracing::warn!(target: "justonce::store", %error, "the store failed: passed unprotected");
        self.pass(RequestBody::whole(body)).await
    }

    async fn without_key<B, R>(self, body: RequestBody<B>) -> Answer<R, S::Error>
    where
        S: Service<http::Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        if self.route.rule.key_presence == KeyPresence::Required {
            swallow(&self.parts.headers, body).await;
            return Ok(self.refuse(missing(&self.route.rule.key_source)));
        }
        self.pass(body).await
    }

    async fn pass<B, R>(self, body: RequestBody<B>) -> Answer<R, S::Error>
    where
        S: Service<http::Request<RequestBody<B>>, Response = Response<R>>,
    {
        let request = http::Request::from_parts(self.parts, body);
        let response = self.service.oneshot(request).await?;
        let status = Some(response.status());
        self.shared.tell(&self.route, None, Fate::Unprotected, status, (0, None));
        let mut response = response.map(ResponseBody::passed);
        let headers = response.headers_mut();
        headers.remove(OUTCOME);
        headers.remove(REPLAYED);
        headers.insert(STATUS, UNPROTECTED);
        Ok(self.shared.with_lifetime(response, &self.route))
    }
}

/// Claims the operation, or learns what became of it. Not an `async fn`, whose arguments lie in its
/// future twice.
pub(crate) fn begin<'a>(
    shared: &'a Shared,
    route: &'a Route,
    operation: &'a Operation,
) -> impl Future<Output = Result<Begun, Refused>> + Send + 'a {
    let closed = shared.gate.as_ref().and_then(|gate| gate.closed_for());
    async move {
        if let Some(time) = closed {
            return match shared.engine.peek(operation).await {
                Ok(Some(existing)) => Ok(Begun::Existing(existing)),
                Ok(None) => Err(Refused::NotNow(shared.gate_closed(time))),
                Err(error) => Err(Refused::NotNow(shared.not_executed(&error.into()))),
            };
        }
        // Most requests wait for nobody: only those that do are counted as waiting.
        match shared.engine.begin(operation).await? {
            Begun::Existing(Existing::Busy(busy))
                if operation.concurrent_rule() != OnConcurrent::Reject =>
            {
                Box::pin(wait_and_begin(shared, route, operation, busy)).await
            }
            begun => Ok(begun),
        }
    }
}

/// Waits for the claim of another caller to end.
async fn wait_and_begin(
    shared: &Shared,
    route: &Route,
    operation: &Operation,
    busy: Busy,
) -> Result<Begun, Refused> {
    let meters = &route.meters;
    meters.concurrent.increment(1);
    let _waiting = Waiting::new(&meters.waiters);
    let start = Instant::now();
    let begun = shared.engine.wait_and_begin(operation, busy).await;
    meters.lock_wait.record(start.elapsed().as_secs_f64());
    // The operation is known to run: now nothing may pass, whatever the store says.
    begun.map_err(|error| Refused::NotNow(shared.not_executed(&error)))
}

/// Whether the store is away. One that answers, but with a record that cannot be read, is not: the
/// operation may be done.
const fn is_down(error: &RunError) -> bool {
    match error {
        RunError::Store(error) => {
            !matches!(error.kind(), StoreErrorKind::Damaged | StoreErrorKind::Protocol)
        }
        _ => false,
    }
}

/// Why nothing was begun.
pub(crate) enum Refused {
    /// For good: it does not pass.
    NotNow(Problem),
    /// The store or the engine said no.
    Run(RunError),
}

impl From<RunError> for Refused {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// One duplicate that waits, for as long as this lives.
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

/// Says where this route wants its keys.
fn missing(source: &KeySource) -> Problem {
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
        "This route demands an idempotency key: {place}, with a value that is new for every \
         operation and the same for its retries."
    );
    Problem::new(ProblemCode::KeyMissing, detail)
}

fn bad_key(why: BadKey) -> Problem {
    Problem::new(ProblemCode::KeyInvalid, why.to_string())
}

fn unread_problem(route: &Route, unread: &Unread) -> Problem {
    match unread {
        Unread::TooLarge => Problem::new(
            ProblemCode::BodyTooLarge,
            format!("The body is over {} bytes.", route.rule.max_request_bytes),
        ),
        Unread::NoRoom => Problem::new(ProblemCode::Overloaded, NO_ROOM).retry_after(TRY_AGAIN),
        Unread::Incomplete(error) => {
            tracing::info!(target: "justonce::request", %error, "the body did not arrive whole");
            let detail = "The body did not arrive whole. Nothing was executed.";
            Problem::new(ProblemCode::BodyIncomplete, detail)
        }
    }
}

fn panicked<R>(shared: &Shared, route: &Route) -> Response<ResponseBody<R>> {
    tracing::error!(target: "justonce::request", route = &*route.name, "the service panicked");
    let problem = Problem::new(ProblemCode::UpstreamFailed, PANICKED);
    let response = shared.problem(problem.status(StatusCode::INTERNAL_SERVER_ERROR), route);
    let told = (0, instance_of(&response));
    shared.tell(route, None, Fate::Abandoned, Some(response.status()), told);
    response
}

const NO_ROOM: &str = "The operation was not executed: too many large bodies are being received. \
                       Try again later with the same key.";
const PANICKED: &str = "The service crashed. The operation may have taken effect. Repeat the \
                        request with the same key, never with a new one.";
