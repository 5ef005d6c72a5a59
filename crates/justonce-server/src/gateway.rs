//! The service behind the listener. Its routes can be replaced while it runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use justonce::Engine;
use justonce::http::{BoxError, ProtectedFuture, RequestBody, ResponseBody, WELL_KNOWN};
use tower::Service;

use crate::completer::Completers;
use crate::config::Settings;
use crate::identity::Callers;
use crate::probe::Probers;
use crate::stack::{Stack, stack};
use crate::upstream_problems::UpstreamProblems;
use crate::upstreams::Upstreams;
use justonce_proxy::{ProxyBody, add_forwarded};

/// The service behind the listener. Cheap to clone; all clones share the routes.
#[derive(Clone)]
pub(crate) struct Gateway {
    engine: Engine,
    upstreams: Upstreams,
    stack: Arc<ArcSwap<Stack>>,
    probers: Arc<Probers>,
    completers: Arc<Completers>,
    callers: Arc<ArcSwap<Callers>>,
    /// Those in force.
    settings: Arc<ArcSwap<Settings>>,
}

impl Gateway {
    /// A gateway with these routes. Starts their probers and their completer, and the checks of
    /// their upstreams.
    ///
    /// # Errors
    ///
    /// If a setting cannot be made a rule, or a file that an upstream needs cannot be used.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if a route has a probe or completes its operations, or an upstream
    /// is checked.
    pub(crate) fn new(engine: Engine, settings: &Settings) -> anyhow::Result<Self> {
        let probers = Arc::new(Probers::default());
        let upstreams = Upstreams::new(&engine, settings)?;
        let now = upstreams.now();
        let callers = Callers::new(&engine, settings)?;
        let stack = stack(&engine, &now, Arc::<Probers>::clone(&probers), &callers, settings)?;
        probers.exchange(&engine, &now, settings)?;
        let stack = Arc::new(ArcSwap::from_pointee(stack));
        let completers = Arc::<Completers>::default();
        completers.exchange(&engine, &stack, settings)?;
        let callers = Arc::new(ArcSwap::from_pointee(callers));
        let settings = Arc::new(ArcSwap::from_pointee(settings.clone()));
        Ok(Self { engine, upstreams, stack, probers, completers, callers, settings })
    }

    /// Its upstreams.
    pub(crate) fn upstreams(&self) -> Upstreams {
        self.upstreams.clone()
    }

    /// Replaces the routes and the upstreams. Requests in flight keep those they began with.
    ///
    /// # Errors
    ///
    /// If a setting cannot be made a rule, or a file that an upstream needs cannot be used; the old
    /// routes and upstreams stay in force.
    pub(crate) fn change_routes(&self, settings: &Settings) -> anyhow::Result<()> {
        let met_unknown = Arc::<Probers>::clone(&self.probers);
        let upstreams = self.upstreams.renewed(&self.engine, settings)?;
        let callers = self.callers.load().renewed(settings)?;
        let stack = stack(&self.engine, &upstreams, met_unknown, &callers, settings)?;
        self.probers.exchange(&self.engine, &upstreams, settings)?;
        self.upstreams.replace(upstreams);
        self.stack.store(Arc::new(stack));
        self.callers.store(Arc::new(callers));
        self.settings.store(Arc::new(settings.clone()));
        self.start_completing()
    }

    /// Starts the completer, if routes want one; the one before ends.
    ///
    /// # Errors
    ///
    /// If a route cannot be completed.
    pub(crate) fn start_completing(&self) -> anyhow::Result<()> {
        self.completers.exchange(&self.engine, &self.stack, &self.settings.load())
    }

    /// Stops the completer. What it is driving goes on.
    pub(crate) fn stop_completing(&self) {
        self.completers.stop();
    }
}

impl<B> Service<Request<B>> for Gateway
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ProxyBody>>;
    type Error = Infallible;
    type Future = ProtectedFuture<
        <UpstreamProblems as Service<Request<RequestBody<B>>>>::Future,
        ProxyBody,
        Infallible,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        // Requests that are never protected may be upgrades; the proxy changes their heads.
        let is_ours = parts.uri.path().starts_with(WELL_KNOWN);
        if is_ours || !(parts.method.is_safe() || parts.method == Method::CONNECT) {
            add_forwarded(&mut parts);
        }
        // Every part of the stack is always ready.
        Stack::clone(&self.stack.load()).call(Request::from_parts(parts, body))
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}
