//! The upstream side as a tower service.

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
use tower::Service;

use super::body::{BoxError, SendBody};
use super::upstreams::{Listener, Upstreams};
use super::{BreakerEvent, ProxyBody, ProxySettings, SettingsError, UpstreamStatus, exchange};

/// Sends requests to the upstreams and brings back their answers. Cheap to clone.
///
/// It never fails: trouble is an answer of its own, see [`Trouble`](super::Trouble).
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) settings: ProxySettings,
    pub(super) upstreams: Arc<Upstreams>,
}

impl Proxy {
    /// One with these settings.
    ///
    /// # Errors
    ///
    /// If there is no upstream, or TLS to one of them cannot be set up.
    pub fn new(settings: ProxySettings) -> Result<Self, SettingsError> {
        Self::build(settings, None)
    }

    /// One that also tells what its breakers do.
    ///
    /// # Errors
    ///
    /// As [`Proxy::new`].
    pub fn with_events(
        settings: ProxySettings,
        events: impl Fn(&BreakerEvent) + Send + Sync + 'static,
    ) -> Result<Self, SettingsError> {
        Self::build(settings, Some(Arc::new(events)))
    }

    fn build(settings: ProxySettings, events: Option<Listener>) -> Result<Self, SettingsError> {
        let upstreams = Arc::new(Upstreams::new(&settings, events)?);
        Ok(Self { shared: Arc::new(Shared { settings, upstreams }) })
    }

    /// Sends a request and brings back its answer.
    pub async fn send<B>(&self, request: Request<B>) -> Response<ProxyBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        exchange::exchange(&self.shared, request.map(SendBody::new)).await
    }

    /// How long nothing will be sent anywhere, because every upstream's breaker is open; nothing
    /// while one of them would be tried.
    #[must_use]
    pub fn closed_for(&self) -> Option<Duration> {
        self.shared.upstreams.closed_for()
    }

    /// How the upstreams fare.
    #[must_use]
    pub fn status(&self) -> Vec<UpstreamStatus> {
        self.shared.upstreams.status()
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
        let shared = Arc::clone(&self.shared);
        let request = request.map(SendBody::new);
        Box::pin(async move { Ok(exchange::exchange(&shared, request).await) })
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("upstreams", &self.shared.upstreams).finish()
    }
}
