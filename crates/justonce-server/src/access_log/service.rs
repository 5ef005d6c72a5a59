//! The service of the listener: what is noted of each request, around the gateway itself.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, Response, request};
use http_body::Body;
use justonce::http::{BoxError, WELL_KNOWN};
use pin_project_lite::pin_project;
use tower::Service;

use super::body::{CountedBody, LoggedBody};
use super::line::Line;
use super::log::AccessLog;
use crate::gateway::Gateway;
use crate::handover::{InFlight, Requests};
use crate::traces::Traces;

/// The gateway, with its access log and the traces of its requests. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    gateway: Gateway,
    log: Option<AccessLog>,
    traces: Traces,
    requests: Requests,
}

impl Front {
    pub(crate) fn new(
        gateway: Gateway,
        log: Option<AccessLog>,
        traces: Traces,
        requests: Requests,
    ) -> Self {
        Self { gateway, log, traces, requests }
    }
}

impl<B> Service<Request<B>> for Front
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<LoggedBody<GatewayBody>>;
    type Error = Infallible;
    type Future = LoggedFuture<<Gateway as Service<Request<CountedBody<B>>>>::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        self.traces.settle(&mut parts.headers);
        let line = self.log.as_ref().and_then(|log| log.begin(&mut parts));
        let body = CountedBody::new(body, line.as_ref().map(|line| line.received()));
        let in_flight = may_use_the_store(&parts).then(|| self.requests.begin());
        let response = self.gateway.call(Request::from_parts(parts, body));
        LoggedFuture { response, line, in_flight }
    }
}

/// Whether a request is more than one that passes through.
fn may_use_the_store(parts: &request::Parts) -> bool {
    let passes = parts.method.is_safe() || parts.method == Method::CONNECT;
    !passes || parts.uri.path().starts_with(WELL_KNOWN)
}

/// The body of the gateway's responses.
pub(super) type GatewayBody = justonce::http::ResponseBody<justonce_proxy::ProxyBody>;

pin_project! {
    /// The response to a request, and its line in the log. Dropped before, its client has left.
    #[derive(Debug)]
    pub(crate) struct LoggedFuture<F> {
        #[pin]
        response: F,
        line: Option<Box<Line>>,
        in_flight: Option<InFlight>,
    }
}

impl<F> Future for LoggedFuture<F>
where
    F: Future<Output = Result<Response<GatewayBody>, Infallible>>,
{
    type Output = Result<Response<LoggedBody<GatewayBody>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(cx))?;
        let mut line = this.line.take();
        line.iter_mut().for_each(|line| line.begin_response(response.status()));
        // A stream that passes through may last for ever, and needs no store.
        let in_flight = this.in_flight.take().filter(|_| !response.body().is_passed());
        Poll::Ready(Ok(response.map(|body| LoggedBody::new(body, line, in_flight))))
    }
}
