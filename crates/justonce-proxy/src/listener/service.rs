//! The service of a connection: prepares each request and hands it to the listener's service.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use justonce_http::{BoxError, ClientAddress, ClientCertificate, is_grpc};
use pin_project_lite::pin_project;
use tower::Service;

use super::activity::{ActiveRequest, Activity};
use super::certificate::is_forwarded;
use super::cookies;
use super::refused::{Observer, RefusalReason, RefusedRequest};
use super::request_body::TimeoutBody;
use crate::abort::Abort;
use crate::client::Client;
use crate::forwarded::{self, TrustedProxies};
use crate::informational::InformationalQueue;

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A service that a listener can hand requests to. Implemented for all that fit.
pub trait ListenerService:
    Service<
        Request<TimeoutBody>,
        Response = Response<Self::ResponseBody>,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type ResponseBody: Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> ListenerService for S
where
    S: Service<Request<TimeoutBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type ResponseBody = B;
}

/// Hands the requests of one connection to the service of the listener.
pub(super) struct RequestService<S> {
    pub(super) service: S,
    pub(super) client: Client,
    /// What the client has shown, if it has connected itself.
    pub(super) certificate: Option<ClientCertificate>,
    /// The trusted proxies, if this connection comes from one of them.
    pub(super) proxies: Option<Arc<TrustedProxies>>,
    pub(super) activity: Arc<Activity>,
    pub(super) informational: Arc<InformationalQueue>,
    pub(super) body_timeout: Duration,
    pub(super) aborted: Abort,
    pub(super) observer: Observer,
}

impl<S: ListenerService> RequestService<S> {
    /// The response to a request.
    pub(super) fn respond(
        &self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ResponseBody<S::ResponseBody>>, S::Error>> + use<S>
    {
        let mut active = self.activity.begin_request();
        let one_host = names_one_host(&request);
        if !one_host {
            self.observer.refused(&RefusedRequest {
                client: self.client.address(),
                version: request.version(),
                head: Some((request.method(), request.uri())),
                status: Some(StatusCode::BAD_REQUEST),
                reason: RefusalReason::Malformed,
                elapsed: Duration::ZERO,
            });
        }
        // Without an upgrade the connection cannot be used for another request.
        let upgrade =
            *request.method() == Method::GET && request.headers().contains_key(header::UPGRADE);
        if upgrade {
            request.extensions_mut().insert(self.aborted.clone());
        }
        let is_http1 = request.version() != Version::HTTP_2;
        let mut informational = None;
        match request.version() {
            Version::HTTP_11 if one_host => {
                request.extensions_mut().insert(self.informational.begin_request());
                informational = Some(Arc::clone(&self.informational));
            }
            Version::HTTP_2 => cookies::join(request.headers_mut()),
            _ => {}
        }
        let client = match &self.proxies {
            None => self.client.clone(),
            Some(trusted) => forwarded::find(&self.client, trusted, request.headers()),
        };
        if let Some(address) = client.address() {
            request.extensions_mut().insert(ClientAddress(address));
        }
        request.extensions_mut().insert(client);
        if let Some(certificate) = &self.certificate
            && !is_forwarded(request.headers())
        {
            request.extensions_mut().insert(certificate.clone());
        }
        // One that has a key is read whole, with a timeout of the layer's own.
        let is_stream =
            request.version() == Version::HTTP_2 && is_grpc(request.method(), request.headers());
        let request =
            request.map(|body| TimeoutBody::new(body, self.body_timeout).stream(is_stream));
        let mut service = self.service.clone();
        async move {
            if !one_host {
                let mut refusal = Response::new(ResponseBody { body: None, active: None });
                *refusal.status_mut() = StatusCode::BAD_REQUEST;
                refusal.headers_mut().insert(header::CONNECTION, CLOSE);
                return Ok(refusal);
            }
            poll_fn(|cx| service.poll_ready(cx)).await?;
            let mut response = service.call(request).await?;
            active.set_pending(false);
            informational.iter().for_each(|queue| queue.begin_response());
            let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if (upgrade || (is_http1 && active.is_last())) && !is_switched {
                response.headers_mut().insert(header::CONNECTION, CLOSE);
            }
            Ok(response.map(|body| ResponseBody { body: Some(body), active: Some(active) }))
        }
    }
}

/// Whether a request names one host. With two or none, servers disagree about what it is for.
fn names_one_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => is_a_host(host),
        (None, _) => request.version() != Version::HTTP_11 || request.uri().authority().is_some(),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a value is a host and perhaps a port; an empty one is allowed. Servers disagree about
/// everything else.
fn is_a_host(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let authority = || Authority::try_from(bytes).is_ok_and(|host| !host.host().is_empty());
    bytes.is_empty() || (!bytes.contains(&b'@') && authority())
}

pin_project! {
    /// The body of a response; its request is active until it has ended.
    pub(super) struct ResponseBody<B> {
        #[pin]
        body: Option<B>,
        active: Option<ActiveRequest>,
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let Some(body) = this.body.as_pin_mut() else { return Poll::Ready(None) };
        let frame = body.poll_frame(cx);
        this.active.iter_mut().for_each(|active| active.set_pending(frame.is_pending()));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
