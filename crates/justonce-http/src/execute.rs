//! Executing a claimed operation: the service is called once, its answer is captured and stored.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, request};
use http_body::Body;
use justonce_core::engine::{Context, Explainer};
use justonce_core::{HandlerError, HeldClaim, Operation, Outcome, Ran, RunError};
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use crate::body::{BoxError, RequestBody, ResponseBody, WholeBody};
use crate::capture::{Opening, Pump, Start, start};
use crate::cause::{AnsweredBy, Cause, Instance};
use crate::detach::Early;
use crate::extract::Idempotent;
use crate::fate::Fate;
use crate::headers::{ATTEMPT, FENCE, Filter, KEY, RECORD};
use crate::key::written;
use crate::problem::{Problem, ProblemCode};
use crate::read::announced;
use crate::room::Place;
use crate::routes::Route;
use crate::shared::{FAILED, Shared};
use crate::stored::{Captured, bodiless, outcome};
use crate::verdict::{Unframed, Verdict};

/// What the caller gets.
pub(crate) type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

/// An operation that is about to be executed.
pub(crate) struct Execution<S> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) route: Arc<Route>,
    pub(crate) operation: Operation,
    pub(crate) service: S,
    pub(crate) parts: request::Parts,
    pub(crate) body: WholeBody,
    pub(crate) place: Place,
}

/// What the service has said so far.
enum Said<R, E> {
    Nothing,
    /// A whole answer, held back until it is stored.
    Answer(Response<ResponseBody<R>>),
    /// The beginning has gone to the caller; this has the rest.
    Streaming(Pump),
    /// It broke off in the middle of a body that had begun to go out.
    BrokenOff,
    Problem(Problem),
    Error(E),
}

impl<S> Execution<S> {
    /// Executes, stores, and answers at the end or, with a streamed body, through `early`.
    pub(crate) fn run<B, R>(
        self,
        claim: HeldClaim,
        early: Early<Answer<R, S::Error>>,
    ) -> impl Future<Output = Option<Answer<R, S::Error>>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let Self { shared, route, operation, service, parts, body, place } = self;
        // In a box: it is handed on a few times before the service has it, and it is large.
        let request = Box::new(Request::from_parts(parts, RequestBody::whole(body)));
        async move {
            let _place = place;
            let begun = Instant::now();
            let attempt = claim.attempt();
            if attempt > 1 {
                shared.meters(&route).takeovers.increment(1);
            }
            let said = Mutex::new(Said::Nothing);
            let saw = Mutex::new(Saw::default());
            let call = Call { route: &route, shared: &shared, said: &said, saw: &saw, early };
            let ran = shared
                .engine
                .execute(&operation, claim, |context| call.handle(context, service, request))
                .await;
            let said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
            let (answer, fate) = conclude(ran, said, &shared, &route);
            let meters = shared.meters(&route);
            meters.processing.record(begun.elapsed().as_secs_f64());
            let status =
                answer.as_ref().and_then(|answer| answer.as_ref().ok()).map(Response::status);
            let instance = answer.as_ref().and_then(|answer| answer.as_ref().ok());
            let instance = instance.and_then(instance_of);
            shared.tell(&route, Some(&operation), fate, status, (attempt, instance));
            if fate == Fate::Abandoned {
                let saw = saw.into_inner().unwrap_or_else(PoisonError::into_inner);
                shared.tell_abandoned(&route, &operation, &saw, (begun.elapsed(), instance));
            }
            answer
        }
    }
}

/// One call of the service.
struct Call<'a, R, E> {
    route: &'a Arc<Route>,
    shared: &'a Shared,
    said: &'a Mutex<Said<R, E>>,
    saw: &'a Mutex<Saw>,
    early: Early<Answer<R, E>>,
}

/// What was seen of the service, for operators.
#[derive(Debug, Default)]
pub(crate) struct Saw {
    pub(crate) status: Option<u16>,
    pub(crate) upstream: Option<AnsweredBy>,
    pub(crate) cause: Option<String>,
}

impl<R, E> Call<'_, R, E>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    /// Marks the request and hears the service. What is needed only before the call is gone when
    /// the waiting begins: each operation that is under way keeps what is left in memory.
    fn handle<S, B>(
        self,
        context: Context,
        service: S,
        mut request: Box<Request<RequestBody<B>>>,
    ) -> impl Future<Output = Result<Outcome, HandlerError>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>, Error = E>,
    {
        let explainer = context.explainer();
        mark(&mut request, context, self.route);
        service.oneshot(*request).then(|answer| self.heard(answer, explainer))
    }

    /// Keeps what was seen, for the timeline of an operation that becomes unknown and for the log.
    fn saw(&self, explainer: &Explainer, seen: Saw) {
        if let Some(cause) = &seen.cause {
            explainer.explain(cause);
        }
        *self.saw.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// Captures an answer, at once or while it goes to the caller.
    async fn heard(
        self,
        answer: Result<Response<R>, E>,
        explainer: Explainer,
    ) -> Result<Outcome, HandlerError> {
        let (mut parts, body) = match answer {
            Ok(response) => response.into_parts(),
            Err(error) => {
                let cause = Some("phase=waiting error=the service failed".to_owned());
                self.saw(&explainer, Saw { cause, ..Saw::default() });
                return self.say(Said::Error(error), Err(HandlerError::Unknown));
            }
        };
        let said = parts.extensions.remove::<Verdict>();
        let rule = &self.route.rule;
        let filter = Filter::new(rule, &parts.headers);
        let verdict = rule.statuses.verdict(parts.status, &parts.headers, said);
        let unframed = parts.extensions.remove::<Unframed>().is_some();
        let verdict = match verdict {
            // Half an answer must not be replayed as a whole one.
            Verdict::Final if unframed => Verdict::Unknown,
            verdict => verdict,
        };
        if verdict == Verdict::Unknown {
            self.saw(&explainer, seen(&parts, "answered"));
        }
        let announced =
            if bodiless(parts.status) { None } else { announced(&parts.headers, &body) };
        match start(body, announced).await {
            Start::Whole(body) => {
                let data = body.data();
                let captured = if data.len() > rule.max_stored_bytes {
                    Captured::TooLarge(data.len() as u64)
                } else {
                    Captured::Whole(data)
                };
                let outcome = || outcome(&parts, &filter, &captured, body.trailers());
                let verdict = judged(verdict, outcome);
                let answer = forwarded(parts, &filter, ResponseBody::whole(body));
                self.say(Said::Answer(answer), verdict)
            }
            // Apart, so that the many who do not stream have no room for it.
            Start::Open(opening) => {
                Box::pin(self.stream(parts, opening, (announced, verdict), explainer)).await
            }
            Start::Broken => {
                self.saw(&explainer, seen(&parts, "reading_body"));
                let problem = Problem::new(ProblemCode::UpstreamFailed, BROKEN);
                self.say(Said::Problem(problem), Err(HandlerError::Unknown))
            }
        }
    }

    /// Sends the beginning of an answer to the caller, and the rest as it comes.
    async fn stream(
        self,
        parts: Parts,
        opening: Opening<R>,
        (announced, verdict): (Option<u64>, Verdict),
        explainer: Explainer,
    ) -> Result<Outcome, HandlerError> {
        let rule = &self.route.rule;
        let (mut pump, body) = Pump::new(rule.max_stored_bytes, announced);
        let broken = seen(&parts, "reading_body");
        let mut kept = Parts::clone(&parts);
        kept.extensions.clear();
        let filter = Filter::new(rule, &kept.headers);
        let answer = forwarded(parts, &filter, ResponseBody::streamed(body));
        let answer = self.shared.with_lifetime(answer, self.route);
        self.early.give(Ok(answer));
        let (said, result) = if pump.run(opening).await {
            let captured = pump.captured();
            let result = judged(verdict, || outcome(&kept, &filter, &captured, pump.trailers()));
            (Said::Streaming(pump), result)
        } else {
            self.saw(&explainer, broken);
            (Said::BrokenOff, Err(HandlerError::Unknown))
        };
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
        result
    }

    fn say(
        self,
        said: Said<R, E>,
        result: Result<Outcome, HandlerError>,
    ) -> Result<Outcome, HandlerError> {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
        result
    }
}

/// What an answer shows about an operation that may have taken effect: the service's own words
/// about its cause, or the status and how far its answer came.
fn seen(parts: &Parts, phase: &str) -> Saw {
    let own = parts.extensions.get::<Cause>().map(|cause| cause.as_str().to_owned());
    let upstream = parts.extensions.get::<AnsweredBy>().cloned();
    let status = parts.status.as_u16();
    let by = upstream.as_ref().map(|by| format!(" upstream={}", by.0)).unwrap_or_default();
    let cause = own.unwrap_or_else(|| format!("status={status} phase={phase}{by}"));
    Saw { status: Some(status), upstream, cause: Some(cause) }
}

/// The name of a problem that a caller gets.
pub(crate) fn instance_of<B>(response: &Response<B>) -> Option<Instance> {
    response.extensions().get::<Instance>().copied()
}

const BROKEN: &str = "The service broke off in the middle of its answer. The operation may have \
                      taken effect. Repeat the request with the same key, never with a new one.";
const TIMED_OUT: &str = "The service did not answer in time. The operation may have taken effect. \
                         Repeat the request with the same key, never with a new one.";
const SUPERSEDED: &str = "Another attempt with this key took over while this one was running. \
                          Repeat the request with the same key to get its answer.";

/// Tells the service which operation this is, and in which attempt.
fn mark<B>(request: &mut Request<B>, context: Context, route: &Route) {
    let operation = context.operation();
    let headers = request.headers_mut();
    headers.reserve(MARKS);
    let key = written(operation.key(), route.rule.key_syntax);
    // Most callers write it as we do.
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

/// How many headers a request is marked with.
const MARKS: usize = 4;

/// What the engine hears.
fn judged(verdict: Verdict, outcome: impl FnOnce() -> Outcome) -> Result<Outcome, HandlerError> {
    match verdict {
        Verdict::Final => Ok(outcome()),
        Verdict::NotExecuted => Err(HandlerError::NotExecuted),
        Verdict::Unknown => Err(HandlerError::Unknown),
    }
}

/// The answer for the caller who is answered now.
fn forwarded<B>(mut parts: Parts, filter: &Filter<'_>, body: B) -> Response<B> {
    if parts.headers.keys().any(|name| !filter.forwards(name)) {
        // Rebuilt rather than removed from: removing changes the order of the others.
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

/// What the caller gets, now that the store has had its say.
fn conclude<R, E>(
    ran: Result<Ran, RunError>,
    said: Said<R, E>,
    shared: &Shared,
    route: &Arc<Route>,
) -> (Option<Answer<R, E>>, Fate) {
    let fate = Fate::of(&ran);
    let ours = |problem: Problem| Some(Ok(shared.problem(problem, route)));
    let answer = match (ran, said) {
        // The stored outcome of another attempt counts, not what this one said.
        (Ok(Ran::Superseded(_) | Ran::Unknown(_)), Said::Streaming(_) | Said::BrokenOff) => None,
        (Ok(Ran::Superseded(Some(outcome))), _) => {
            Some(Ok(shared.replay(&outcome, StatusCode::OK, route)))
        }
        (Ok(Ran::FailedBefore(outcome)), _) => Some(Ok(shared.replay(&outcome, FAILED, route))),
        (Ok(Ran::Superseded(None)), _) => ours(Problem::new(ProblemCode::Superseded, SUPERSEDED)),
        (Ok(Ran::Unknown(_)), _) => ours(shared.unknown()),
        (_, Said::Answer(answer)) => Some(Ok(shared.with_lifetime(answer, route))),
        (_, Said::Streaming(pump)) => {
            pump.finish();
            None
        }
        (_, Said::BrokenOff) => None,
        (_, Said::Problem(problem)) => ours(problem),
        (_, Said::Error(error)) => Some(Err(error)),
        (_, Said::Nothing) => ours(
            Problem::new(ProblemCode::UpstreamFailed, TIMED_OUT)
                .status(StatusCode::GATEWAY_TIMEOUT),
        ),
    };
    (answer, fate)
}
