//! Executes a claimed operation: calls the service once, captures its response and stores it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::FutureExt;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, request};
use http_body::Body;
use justonce_core::engine::{Context, Explainer};
use justonce_core::{HandlerError, HeldClaim, Operation, Outcome, Ran, RunError};
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use crate::body::{BoxError, RequestBody, ResponseBody, WholeBody};
use crate::caller_limits::Admitted;
use crate::capture::{BodyStart, Forwarder, PartialBody, read_start};
use crate::detach::EarlyResponse;
use crate::effect::ResponseEffect::{self, NotExecuted, Unknown};
use crate::effect::{Cause, Unframed, UpstreamName, grpc_status};
use crate::extract::Idempotent;
use crate::grpc;
use crate::headers::{ATTEMPT, FENCE, KEY, RECORD};
use crate::key::written;
use crate::limited::stored_bytes;
use crate::meters::Disposition;
use crate::outcome::{Captured, Filter, is_bodiless, outcome};
use crate::problem::{Problem, ProblemCode};
use crate::read::{Reservation, declared_length};
use crate::report::Notes;
use crate::routes::Route;
use crate::shared::{FAILED, Shared, instance_of, unknown_problem};

/// What the caller of the layer gets.
pub(crate) type CallResult<R, E> = Result<Response<ResponseBody<R>>, E>;

/// An operation that is about to be executed.
pub(crate) struct Execution<S> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) route: Arc<Route>,
    pub(crate) operation: Operation,
    pub(crate) service: S,
    pub(crate) parts: request::Parts,
    pub(crate) body: WholeBody,
    pub(crate) held: Held,
    pub(crate) notes: Notes,
}

/// What an operation holds until it has ended.
pub(crate) struct Held {
    pub(crate) _reservation: Reservation,
    /// Its place among those of its caller, on a route with limits.
    pub(crate) admitted: Option<Admitted>,
}

/// The response of the service.
enum ServiceResponse<R, E> {
    /// Whole, and held back until it is stored.
    Whole(Response<ResponseBody<R>>),
    /// A stream whose beginning has been sent; this has the rest.
    Streamed(Forwarder),
    /// A stream that was aborted after its beginning had been sent.
    Aborted,
    Problem(Problem),
    Error(E),
}

impl<S> Execution<S> {
    /// Executes, stores, and returns the response; a streamed one is set in `early`.
    pub(crate) fn run<B, R>(
        self,
        claim: HeldClaim,
        early: Arc<EarlyResponse<CallResult<R, S::Error>>>,
    ) -> impl Future<Output = Option<CallResult<R, S::Error>>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let Self { shared, route, operation, service, parts, body, held, notes } = self;
        let is_grpc = grpc::is_call(&parts);
        let has_trailers = is_grpc && parts.version >= Version::HTTP_2;
        // Boxed: it is large, and moved a few times before the service gets it.
        let request = Box::new(Request::from_parts(parts, RequestBody::whole(body)));
        async move {
            let start = Instant::now();
            let attempt = claim.attempt();
            if attempt > 1 {
                route.meters.takeovers.increment(1);
            }
            let explainer = claim.explainer();
            let answered = OnceLock::new();
            let call =
                ServiceCall { route: &route, early, answered: &answered, is_grpc, has_trailers };
            let handler = |context| call.handle(context, service, request);
            let (ran, response) = shared.engine.execute_with(&operation, claim, handler).await;
            let (response, broken) = response.unzip();
            let disposition = Disposition::of(&ran);
            if let Some(admitted) = &held.admitted {
                admitted.add_stored(stored_bytes(&ran), route.rule.policy.retention());
            }
            // Before the caller knows: it may begin the next one at once.
            drop(held);
            // Before the end of a stream is passed on.
            notes.answered(Some(&operation), disposition, attempt);
            let result = conclude(ran, response, &shared, &route);
            route.meters.processing.record(start.elapsed().as_secs_f64());
            let response = result.as_ref().and_then(|result| result.as_ref().ok());
            let of = (&*route, &notes);
            shared.log_request(of, Some(&operation), disposition, attempt, response);
            if disposition == Disposition::Abandoned {
                // A service that timed out may have reported a cause before.
                let explained =
                    || FailureReport { cause: explainer.explained(), ..FailureReport::default() };
                let report = broken.flatten().or_else(|| answered.into_inner());
                let report = report.unwrap_or_else(explained);
                tracing::warn!(
                    target: "justonce::unknown",
                    route = &*route.name,
                    record = %operation.id(),
                    key = ?operation.key(),
                    instance = response.and_then(instance_of).map(tracing::field::display),
                    upstream = report.upstream.as_ref().map(|upstream| &*upstream.0),
                    status = report.status,
                    cause = report.cause.as_deref(),
                    owner = shared.engine.owner().as_str(),
                    trace_id = notes.trace.map(tracing::field::display),
                    duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
                    "an operation may have taken effect"
                );
            }
            result
        }
    }
}

/// One call of the service.
struct ServiceCall<'a, R, E> {
    route: &'a Route,
    early: Arc<EarlyResponse<CallResult<R, E>>>,
    /// The head of a response after which the effect is unknown. It is kept here because the rest
    /// may never arrive: then nothing is returned.
    answered: &'a OnceLock<FailureReport>,
    /// Whether it is a call of gRPC: its trailers tell the effect.
    is_grpc: bool,
    /// Whether its caller gets trailers in any case. HTTP/1.1 leaves out what was not announced.
    has_trailers: bool,
}

/// The result for the engine, and the values that it hands through.
type Handled<R, E> =
    (Result<Outcome, HandlerError>, (ServiceResponse<R, E>, Option<FailureReport>));

impl<R, E> ServiceCall<'_, R, E>
where
    R: Body<Data = Bytes, Error: Into<BoxError>>,
{
    /// Marks the request and calls the service. What only the call needs is dropped before the
    /// await: each running operation keeps the rest in memory.
    fn handle<S, B>(
        self,
        context: Context,
        service: S,
        mut request: Box<Request<RequestBody<B>>>,
    ) -> impl Future<Output = Handled<R, E>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>, Error = E>,
    {
        let explainer = context.explainer();
        mark(&mut request, context, self.route);
        service.oneshot(*request).then(|result| self.capture(result, explainer))
    }

    /// Captures a response, at once or while it is sent to the caller.
    async fn capture(self, result: Result<Response<R>, E>, explainer: Explainer) -> Handled<R, E> {
        let (mut parts, body) = match result {
            Ok(response) => response.into_parts(),
            Err(error) => {
                let cause = Some("phase=waiting error=the service failed".to_owned());
                let report =
                    FailureReport { cause, ..FailureReport::default() }.explained(&explainer);
                return unknown(ServiceResponse::Error(error), report);
            }
        };
        let reported = parts.extensions.remove::<ResponseEffect>();
        let rule = &self.route.rule;
        let filter = Filter::new(rule, &parts.headers);
        let (statuses, status, headers) = (&rule.statuses, parts.status, &parts.headers);
        let mut effect = match self.is_grpc {
            true => statuses.grpc_effect_of_head(status, headers, reported),
            false => Some(statuses.effect(status, headers, reported)),
        };
        if parts.extensions.remove::<Unframed>().is_some() && effect != Some(NotExecuted) {
            // A response that may be incomplete must not be replayed.
            effect = Some(Unknown);
        }
        if effect == Some(Unknown) {
            let report = FailureReport::of(&parts, None, "answered").explained(&explainer);
            let _ = self.answered.set(report);
        }
        let is_bodiless = is_bodiless(parts.status);
        let declared = if is_bodiless { None } else { declared_length(&parts.headers, &body) };
        match read_start(body, declared).await {
            BodyStart::Complete(body) => {
                let trailers = body.trailers();
                let effect = match (self.is_grpc, effect) {
                    (false, Some(effect)) => effect,
                    (_, effect) => {
                        let report = FailureReport::of(&parts, trailers, "answered");
                        let whole = (trailers, !body.data().is_empty());
                        self.judged(effect, &parts.headers, whole, report, &explainer)
                    }
                };
                let result = engine_result(effect, || {
                    let captured = Captured::of(body.data(), rule.max_stored_bytes);
                    outcome(parts.status, &parts.headers, &filter, &captured, trailers)
                });
                let body = body.with_trailers(|trailers| filter.clean(trailers));
                let response = forwarded(parts, &filter, ResponseBody::whole(body));
                (result, (ServiceResponse::Whole(response), None))
            }
            // Boxed, so that responses that are not streamed reserve no memory for it.
            BodyStart::Partial(partial) => {
                Box::pin(self.stream(parts, partial, (declared, effect), explainer)).await
            }
            BodyStart::Aborted => {
                let problem = Problem::new(ProblemCode::UpstreamFailed, ABORTED);
                let report = FailureReport::of(&parts, None, "reading_body").explained(&explainer);
                unknown(ServiceResponse::Problem(problem), report)
            }
        }
    }

    /// The effect of a whole response of gRPC.
    fn judged(
        &self,
        of_head: Option<ResponseEffect>,
        headers: &HeaderMap,
        whole: (Option<&HeaderMap>, bool),
        report: FailureReport,
        explainer: &Explainer,
    ) -> ResponseEffect {
        let effect = self.route.rule.statuses.grpc_effect(of_head, headers, whole);
        // What the head told is explained already.
        if effect == Unknown && of_head != Some(Unknown) {
            let _ = self.answered.set(report.explained(explainer));
        }
        effect
    }

    /// Sends the beginning of a response to the caller, and the rest as it arrives.
    async fn stream(
        self,
        parts: Parts,
        partial: PartialBody<R>,
        (declared, effect): (Option<u64>, Option<ResponseEffect>),
        explainer: Explainer,
    ) -> Handled<R, E> {
        let rule = &self.route.rule;
        let broken_off = self.has_trailers.then(grpc::broken_off);
        let (mut forwarder, body) = Forwarder::new(rule.max_stored_bytes, declared, broken_off);
        let report = FailureReport::of(&parts, None, "reading_body");
        let (status, headers) = (parts.status, parts.headers.clone());
        let filter = Filter::new(rule, &headers);
        let response = forwarded(parts, &filter, ResponseBody::streamed(body));
        self.early.set(Ok(self.route.with_lifetime(response)));
        if forwarder.run(partial).await {
            let captured = forwarder.captured();
            let trailers = forwarder.trailers();
            let effect = match (self.is_grpc, effect) {
                (false, Some(effect)) => effect,
                (_, effect) => {
                    let whole = (trailers, forwarder.has_data());
                    self.judged(effect, &headers, whole, report, &explainer)
                }
            };
            let result =
                engine_result(effect, || outcome(status, &headers, &filter, &captured, trailers));
            forwarder.change_trailers(|trailers| filter.clean(trailers));
            (result, (ServiceResponse::Streamed(forwarder), None))
        } else {
            unknown(ServiceResponse::Aborted, report.explained(&explainer))
        }
    }
}

/// The service was called, and it is unknown whether the operation took effect.
fn unknown<R, E>(response: ServiceResponse<R, E>, report: FailureReport) -> Handled<R, E> {
    (Err(HandlerError::Unknown), (response, Some(report)))
}

/// What operators need to know about a response after which the effect is unknown.
#[derive(Default)]
struct FailureReport {
    status: Option<u16>,
    upstream: Option<UpstreamName>,
    cause: Option<String>,
}

impl FailureReport {
    /// The cause that the service gave, otherwise the status and the phase of the response.
    fn of(parts: &Parts, trailers: Option<&HeaderMap>, phase: &str) -> Self {
        let upstream = parts.extensions.get::<UpstreamName>().cloned();
        let status = parts.status.as_u16();
        let cause = match parts.extensions.get::<Cause>() {
            Some(cause) => cause.as_str().to_owned(),
            None => {
                let by = upstream.as_ref().map(|by| format!(" upstream={}", by.0));
                let grpc = grpc_status(trailers.unwrap_or(&parts.headers));
                let grpc = grpc.map(|status| format!(" grpc_status={status}"));
                let (by, grpc) = (by.unwrap_or_default(), grpc.unwrap_or_default());
                format!("status={status}{grpc} phase={phase}{by}")
            }
        };
        Self { status: Some(status), upstream, cause: Some(cause) }
    }

    /// Adds the cause to the timeline of the operation.
    fn explained(self, explainer: &Explainer) -> Self {
        if let Some(cause) = &self.cause {
            explainer.explain(cause);
        }
        self
    }
}

/// How many headers a request is marked with.
const MARKS: usize = 4;

/// Adds the key, the attempt, the fence and the record to a request.
fn mark<B>(request: &mut Request<B>, context: Context, route: &Route) {
    let operation = context.operation();
    let headers = request.headers_mut();
    headers.reserve(MARKS);
    let key = written(operation.key(), route.rule.key_syntax);
    // Most callers write it in the same way.
    if headers.get_all(KEY).iter().ne([key.as_bytes()])
        && let Ok(key) = HeaderValue::from_str(&key)
    {
        headers.insert(KEY, key);
    }
    let attempt = match context.attempt() {
        1 => HeaderValue::from_static("1"),
        later => HeaderValue::from(later),
    };
    headers.insert(ATTEMPT, attempt);
    headers.insert(FENCE, HeaderValue::from(context.fence().get()));
    if let Ok(record) = HeaderValue::from_bytes(&operation.id().hex()) {
        headers.insert(RECORD, record);
    }
    request.extensions_mut().insert(Idempotent::new(context));
}

fn engine_result(
    effect: ResponseEffect,
    outcome: impl FnOnce() -> Outcome,
) -> Result<Outcome, HandlerError> {
    match effect {
        ResponseEffect::Final => Ok(outcome()),
        ResponseEffect::NotExecuted => Err(HandlerError::NotExecuted),
        ResponseEffect::Unknown => Err(HandlerError::Unknown),
    }
}

/// The response with the headers that are forwarded.
fn forwarded<B>(mut parts: Parts, filter: &Filter<'_>, body: B) -> Response<B> {
    if parts.headers.keys().any(|name| !filter.forwards(name)) {
        // Rebuilt: removing would change the order of the others.
        let mut kept = HeaderMap::with_capacity(parts.headers.len());
        for (name, value) in &parts.headers {
            if filter.forwards(name) {
                kept.append(name.clone(), value.clone());
            }
        }
        parts.headers = kept;
    }
    Response::from_parts(parts, body)
}

/// What the caller gets once the engine has settled the operation; `None` after a stream.
fn conclude<R, E>(
    ran: Result<Ran, RunError>,
    response: Option<ServiceResponse<R, E>>,
    shared: &Shared,
    route: &Route,
) -> Option<CallResult<R, E>> {
    let problem = match (ran, response) {
        (_, Some(ServiceResponse::Aborted)) => return None,
        // The stored outcome of another attempt counts, not the response to this one: its stream
        // is not finished.
        (Ok(Ran::Superseded(_) | Ran::Unknown(_)), Some(ServiceResponse::Streamed(_))) => {
            return None;
        }
        (Ok(Ran::Superseded(Some(outcome))), _) => {
            return Some(Ok(shared.replay(&outcome, StatusCode::OK, route)));
        }
        (Ok(Ran::FailedBefore(outcome)), _) => {
            return Some(Ok(shared.replay(&outcome, FAILED, route)));
        }
        (Ok(Ran::Superseded(None)), _) => Problem::new(ProblemCode::Superseded, SUPERSEDED),
        (Ok(Ran::Unknown(_)), _) => unknown_problem(),
        (_, Some(ServiceResponse::Whole(response))) => {
            return Some(Ok(route.with_lifetime(response)));
        }
        (_, Some(ServiceResponse::Streamed(forwarder))) => {
            forwarder.finish();
            return None;
        }
        (_, Some(ServiceResponse::Problem(problem))) => problem,
        (_, Some(ServiceResponse::Error(error))) => return Some(Err(error)),
        (_, None) => {
            Problem::new(ProblemCode::UpstreamFailed, TIMED_OUT).status(StatusCode::GATEWAY_TIMEOUT)
        }
    };
    Some(Ok(shared.problem(problem, route)))
}

const ABORTED: &str = "The service broke off in the middle of its response. The operation may have \
                       taken effect. Repeat the request with the same key, never with a new one.";
const TIMED_OUT: &str = "The service did not answer in time. The operation may have taken effect. \
                         Repeat the request with the same key, never with a new one.";
const SUPERSEDED: &str = "Another attempt with this key took over while this one was running. \
                          Repeat the request with the same key to get its response.";
