//! The proxy, as a tower service.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use justonce_http::BoxError;
use tower::Service;

use super::exchange::exchange;
use super::health::CheckResult;
use super::request_body::RequestBody;
use super::response_body::ProxyBody;
use super::settings::{ProxySettings, SettingsError};
use super::upstreams::{UpstreamStatus, Upstreams};

/// Sends requests to the upstreams and brings back their responses. Cheap to clone.
///
/// It never fails: a failed exchange is a response too, with a
/// [`ProxyError`](crate::ProxyError).
#[derive(Clone)]
pub struct Proxy {
    upstreams: Arc<Upstreams>,
}

impl Proxy {
    /// A proxy with these settings.
    ///
    /// # Errors
    ///
    /// If there is no upstream, or TLS to one of them cannot be set up: a file cannot be used.
    pub fn new(settings: ProxySettings) -> Result<Self, SettingsError> {
        Ok(Self { upstreams: Arc::new(Upstreams::new(settings)?) })
    }

    /// Sends a request and brings back its response.
    pub async fn send<B>(&self, request: Request<B>) -> Response<ProxyBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        exchange(&self.upstreams, request.map(RequestBody::new)).await
    }

    /// How long no request will be sent because the breakers of all upstreams are open; nothing if
    /// one would be sent now.
    #[must_use]
    pub fn closed_for(&self) -> Option<Duration> {
        self.upstreams.closed_for()
    }

    /// Checks the health of each upstream once, if the settings say how: who wants checks calls
    /// this at the pace that it wants. An upstream that is unhealthy gets no new requests, unless
    /// all are.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn check_health(&self) -> Vec<CheckResult> {
        self.upstreams.check_health().await
    }

    /// The settings that it was made with.
    #[must_use]
    pub fn settings(&self) -> &ProxySettings {
        &self.upstreams.settings
    }

    /// The state of each upstream.
    #[must_use]
    pub fn status(&self) -> Vec<UpstreamStatus> {
        self.upstreams.status()
    }
}

impl<B> Service<Request<B>> for Proxy
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let upstreams = Arc::clone(&self.upstreams);
        let request = request.map(RequestBody::new);
        Box::pin(async move { Ok(exchange(&upstreams, request).await) })
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("upstreams", &self.upstreams).finish()
    }
}
