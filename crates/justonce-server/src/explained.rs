//! Trouble with upstreams, told to callers as problems; and how long each route waits for an
//! answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use justonce::Entropy;
use justonce::http::{
    AnsweredBy, BoxError, Cause, MatchedRoute, Problem, ProblemCode, RequestBody, Unframed,
};
use pin_project_lite::pin_project;
use tower::Service;

use crate::config::{RouteSettings, Settings};
use crate::proxy::{MAX_RESPONSE_HEADERS, Proxy, ProxyBody, ResponseTimeout, Trouble};

/// What routes say about their upstreams.
#[derive(Debug)]
pub(crate) struct Limits {
    by_route: HashMap<String, Limit>,
    base: String,
    entropy: Entropy,
}

/// What one route says.
#[derive(Clone, Copy, Debug)]
struct Limit {
    timeout: Duration,
    keep_unframed: bool,
}

impl Limits {
    pub(crate) fn of(settings: &Settings) -> Self {
        let routes = settings.routes.iter().chain([&settings.default_route]);
        let limit = |route: &RouteSettings| Limit {
            timeout: route.response_timeout,
            keep_unframed: route.keep_unframed,
        };
        let by_route = routes.map(|route| (route.name.clone(), limit(route)));
        Self {
            by_route: by_route.collect(),
            base: settings.problems_base.clone().unwrap_or_default(),
            entropy: Entropy::from_system(),
        }
    }
}

/// The proxy, whose troubles are told as problems.
#[derive(Clone, Debug)]
pub struct Explained {
    proxy: Proxy,
    limits: Arc<Limits>,
}

impl Explained {
    pub(crate) fn new(proxy: Proxy, limits: Limits) -> Self {
        Self { proxy, limits: Arc::new(limits) }
    }
}

impl<B> Service<Request<RequestBody<B>>> for Explained
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = ExplainedFuture<<Proxy as Service<Request<RequestBody<B>>>>::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody<B>>) -> Self::Future {
        let route = request.extensions().get::<MatchedRoute>();
        let limit = route.and_then(|route| self.limits.by_route.get(route.name())).copied();
        if let Some(limit) = limit {
            request.extensions_mut().insert(ResponseTimeout(limit.timeout));
        }
        let keep_unframed = limit.is_some_and(|limit| limit.keep_unframed);
        let route = request.extensions().get::<MatchedRoute>().cloned();
        let record = request.headers().get("idempotency-record").cloned();
        let limits = Arc::clone(&self.limits);
        let answer = self.proxy.call(request);
        ExplainedFuture { answer, limits, keep_unframed, route, record }
    }
}

pin_project! {
    /// The answer of an [`Explained`] proxy.
    #[derive(Debug)]
    pub struct ExplainedFuture<F> {
        #[pin]
        answer: F,
        limits: Arc<Limits>,
        keep_unframed: bool,
        route: Option<MatchedRoute>,
        record: Option<HeaderValue>,
    }
}

impl<F> Future for ExplainedFuture<F>
where
    F: Future<Output = Result<Response<ProxyBody>, Infallible>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.answer.poll(cx))?;
        if *this.keep_unframed {
            response.extensions_mut().remove::<Unframed>();
        }
        Poll::Ready(Ok(match response.extensions().get::<Trouble>().copied() {
            None => response,
            Some(trouble) => {
                let about = (this.route.as_ref(), this.record.as_ref());
                explained(&response, trouble, this.limits, about)
            }
        }))
    }
}

/// The answer as a problem, with everything that the layer must know of it.
fn explained(
    response: &Response<ProxyBody>,
    trouble: Trouble,
    limits: &Limits,
    (route, record): (Option<&MatchedRoute>, Option<&HeaderValue>),
) -> Response<ProxyBody> {
    let (code, detail) = match trouble {
        Trouble::NotReached => (ProblemCode::UpstreamUnreachable, NOT_REACHED),
        Trouble::Failed => (ProblemCode::UpstreamFailed, FAILED),
        Trouble::HeadTooLarge => (ProblemCode::UpstreamFailed, HEAD_TOO_LARGE),
        Trouble::TimedOut => (ProblemCode::UpstreamFailed, TIMED_OUT),
        Trouble::RequestBroken => (ProblemCode::BodyIncomplete, BROKEN),
    };
    let instance = limits.entropy.next_uuid();
    let (by, cause) = (response.extensions().get(), response.extensions().get());
    tracing::warn!(
        target: "justonce::upstream",
        ?trouble,
        route = route.map(MatchedRoute::name),
        record = record.and_then(|record| record.to_str().ok()),
        instance = %instance.urn(),
        upstream = by.map(|by: &AnsweredBy| &*by.0),
        cause = cause.map(Cause::as_str),
        "no answer of an upstream"
    );
    let problem = Problem::new(code, detail).status(response.status());
    let mut told = problem.into_response(&limits.base, instance).map(ProxyBody::full);
    told.extensions_mut().extend(response.extensions().clone());
    told
}

const NOT_REACHED: &str = "The service could not be reached. Nothing was executed. Try again with \
                           the same key.";
const FAILED: &str = "The service was reached, but no whole answer came back. The operation may \
                      have taken effect. Repeat the request with the same key, never with a new \
                      one.";
const _: () = assert!(MAX_RESPONSE_HEADERS == 512, "the text below names it");
const HEAD_TOO_LARGE: &str = "The service answered with more than 512 header fields, or with a \
                              head that is too long to be read. The operation may have taken \
                              effect. Repeat the request with the same key, never with a new one.";
const TIMED_OUT: &str = "The service did not answer in time. The operation may have taken effect. \
                         Repeat the request with the same key, never with a new one.";
const BROKEN: &str = "The request broke off before all of it had arrived.";
