//! Failures of upstreams as problems for callers, and the response timeout of each route.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use justonce::Entropy;
use justonce::http::{
    BoxError, Cause, MatchedRoute, Problem, ProblemCode, RequestBody, TraceId, Unframed,
    UpstreamName,
};
use justonce_proxy::{MAX_RESPONSE_HEADERS, ProxyBody, ProxyError, ResponseTimeout};
use tower::Service;

use crate::config::{RouteSettings, Settings};
use crate::upstreams::RouteProxies;

/// The settings of routes that concern responses of upstreams.
#[derive(Debug)]
pub(crate) struct RouteLimits {
    by_route: HashMap<String, RouteLimit>,
    base: String,
    entropy: Entropy,
}

#[derive(Debug)]
struct RouteLimit {
    timeout: Duration,
    keep_unframed: bool,
}

impl RouteLimits {
    pub(crate) fn new(settings: &Settings) -> Self {
        let routes = settings.all_routes();
        let limit = |route: &RouteSettings| RouteLimit {
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

/// The proxies to the upstreams, with problems in place of their errors.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamProblems {
    proxies: Arc<RouteProxies>,
    limits: Arc<RouteLimits>,
}

impl UpstreamProblems {
    pub(crate) fn new(proxies: Arc<RouteProxies>, limits: RouteLimits) -> Self {
        Self { proxies, limits: Arc::new(limits) }
    }
}

impl<B> Service<Request<RequestBody<B>>> for UpstreamProblems
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ProxyBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody<B>>) -> Self::Future {
        let route = request.extensions().get::<MatchedRoute>().cloned();
        let limit = route.as_ref().and_then(|route| self.limits.by_route.get(route.name()));
        if let Some(limit) = limit {
            request.extensions_mut().insert(ResponseTimeout(limit.timeout));
        }
        let keep_unframed = limit.is_some_and(|limit| limit.keep_unframed);
        let record = request.headers().get("idempotency-record").cloned();
        let trace = TraceId::of(request.headers());
        let proxy = match &route {
            Some(route) => self.proxies.of_route(route.name()),
            None => self.proxies.of_request(request.method(), request.uri().path()),
        };
        let (limits, proxy) = (Arc::clone(&self.limits), proxy.clone());
        Box::pin(async move {
            let mut response = proxy.send(request).await;
            if keep_unframed {
                response.extensions_mut().remove::<Unframed>();
            }
            Ok(match response.extensions().get::<ProxyError>().copied() {
                None => response,
                Some(error) => {
                    problem(&response, error, &limits, (route.as_ref(), record.as_ref(), trace))
                }
            })
        })
    }
}

/// The problem for an error, with the extensions that the layer needs.
fn problem(
    response: &Response<ProxyBody>,
    error: ProxyError,
    limits: &RouteLimits,
    (route, record, trace): (Option<&MatchedRoute>, Option<&HeaderValue>, Option<TraceId>),
) -> Response<ProxyBody> {
    let (code, detail) = match error {
        ProxyError::NotReached => (ProblemCode::UpstreamUnreachable, NOT_REACHED),
        ProxyError::Failed => (ProblemCode::UpstreamFailed, FAILED),
        ProxyError::HeadTooLarge => (ProblemCode::UpstreamFailed, HEAD_TOO_LARGE),
        ProxyError::TimedOut => (ProblemCode::UpstreamFailed, TIMED_OUT),
        ProxyError::RequestBroken => (ProblemCode::BodyIncomplete, BROKEN),
    };
    let instance = limits.entropy.next_uuid();
    let (by, cause) = (response.extensions().get(), response.extensions().get());
    tracing::warn!(
        target: "justonce::upstream",
        trouble = ?error,
        route = route.map(MatchedRoute::name),
        record = record.and_then(|record| record.to_str().ok()),
        instance = %instance.urn(),
        upstream = by.map(|by: &UpstreamName| &*by.0),
        cause = cause.map(Cause::as_str),
        trace_id = trace.map(tracing::field::display),
        "upstream request failed"
    );
    let problem = Problem::new(code, detail).status(response.status());
    let mut problem = problem.into_response(&limits.base, instance).map(ProxyBody::full);
    problem.extensions_mut().extend(response.extensions().clone());
    problem
}

const NOT_REACHED: &str = "The service could not be reached. Nothing was executed. Try again with \
                           the same key.";
const FAILED: &str = "The service was reached, but no complete response came back. The operation \
                      may have taken effect. Repeat the request with the same key, never with a \
                      new one.";
const _: () = assert!(MAX_RESPONSE_HEADERS == 512, "the text below names it");
const HEAD_TOO_LARGE: &str = "The service answered with more than 512 header fields, or with a \
                              head that is too long to be read. The operation may have taken \
                              effect. Repeat the request with the same key, never with a new one.";
const TIMED_OUT: &str = "The service did not answer in time. The operation may have taken effect. \
                         Repeat the request with the same key, never with a new one.";
const BROKEN: &str = "The request broke off before all of it had arrived.";
