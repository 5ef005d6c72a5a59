//! The last step between a connection and the service behind it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::Service;

use super::early::Early;
use super::gauge::{Busy, Gauge};
use super::{Client, TimedBody, cookies};

/// Hands requests to a service: with who asked, and with a body that does not stand still.
pub(super) struct Door<S> {
    pub(super) service: S,
    pub(super) client: Client,
    pub(super) gauge: Arc<Gauge>,
    pub(super) early: Arc<Early>,
    pub(super) patience: Duration,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Door<S>
where
    S: Service<Request<TimedBody>, Response = Response<B>> + Clone,
    B: Body,
{
    type Response = Response<DoorBody<B>>;
    type Error = S::Error;
    type Future = Passage<S>;

    fn call(&self, request: Request<Incoming>) -> Passage<S> {
        let busy = Some(self.gauge.begin());
        if !names_one_host(&request) {
            let state = State::Refused { status: StatusCode::BAD_REQUEST };
            return Passage { state, busy, early: None, close: true };
        }
        let close =
            *request.method() == Method::GET && request.headers().contains_key(header::UPGRADE);
        let mut request = request.map(|body| TimedBody::new(body, self.patience));
        request.extensions_mut().insert(self.client.clone());
        let mut early = None;
        match request.version() {
            Version::HTTP_11 => {
                request.extensions_mut().insert(self.early.begin());
                early = Some(Arc::clone(&self.early));
            }
            Version::HTTP_2 => cookies::join(request.headers_mut()),
            _ => {}
        }
        let state = State::Waiting { service: self.service.clone(), request: Some(request) };
        Passage { state, busy, early, close }
    }
}

/// A request for two hosts, or for none, means different things to different readers.
fn names_one_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => is_a_host(host),
        (None, _) => request.version() != Version::HTTP_11 || request.uri().authority().is_some(),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a value is a host and perhaps a port; an empty one is too. What is neither is read by
/// each server in its own way.
fn is_a_host(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let authority = || Authority::try_from(bytes).is_ok_and(|host| !host.host().is_empty());
    bytes.is_empty() || (!bytes.contains(&b'@') && authority())
}

pin_project! {
    /// A request on its way through the door.
    pub(super) struct Passage<S>
    where
        S: Service<Request<TimedBody>>,
    {
        #[pin]
        state: State<S>,
        busy: Option<Busy>,
        early: Option<Arc<Early>>,
        // Whether the connection cannot be used for another request unless it now speaks another
        // protocol.
        close: bool,
    }
}

pin_project! {
    #[project = StateView]
    enum State<S>
    where
        S: Service<Request<TimedBody>>,
    {
        Waiting { service: S, request: Option<Request<TimedBody>> },
        Called { #[pin] future: S::Future },
        Refused { status: StatusCode },
    }
}

impl<S, B> Future for Passage<S>
where
    S: Service<Request<TimedBody>, Response = Response<B>>,
{
    type Output = Result<Response<DoorBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateView::Called { future } => {
                    let response = ready!(future.poll(cx))?;
                    let mut busy = this.busy.take();
                    busy.iter_mut().for_each(|busy| busy.set_ours(false));
                    this.early.iter().for_each(|early| early.end());
                    let mut response = response.map(|body| DoorBody { body: Some(body), busy });
                    if *this.close && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                        let close = HeaderValue::from_static("close");
                        response.headers_mut().insert(header::CONNECTION, close);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateView::Waiting { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    match request.take() {
                        Some(request) => State::Called { future: service.call(request) },
                        None => State::Refused { status: StatusCode::INTERNAL_SERVER_ERROR },
                    }
                }
                StateView::Refused { status } => {
                    let mut response = Response::new(DoorBody { body: None, busy: None });
                    *response.status_mut() = *status;
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

pin_project! {
    /// The body of an answer; its connection counts as busy until it has ended.
    #[derive(Debug)]
    pub struct DoorBody<B> {
        #[pin]
        body: Option<B>,
        busy: Option<Busy>,
    }
}

impl<B: Body> Body for DoorBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let Some(body) = this.body.as_pin_mut() else { return Poll::Ready(None) };
        let frame = body.poll_frame(cx);
        this.busy.iter_mut().for_each(|busy| busy.set_ours(frame.is_pending()));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
