//! The stack that every request goes through, and its exchange while the gateway runs.
//!
//! From the client to the upstream: the layer that makes operations take effect once, the pages
//! that explain trouble, the proxy.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use justonce::Engine;
use justonce::http::{
    BoxError, Gate, Protected, ProtectedFuture, RequestBody, ResponseBody, WELL_KNOWN,
};
use tower::{Layer, Service};

use crate::completer::Completers;
use crate::config::Settings;
use crate::explained::{Explained, Limits};
use crate::probe::Probers;
use crate::proxy::{Proxy, ProxyBody, introduced};
use crate::rules;

/// What one set of routes makes of the stack.
pub(crate) type Stack = Protected<Explained>;

/// The service behind the listener. Cheap to clone; all clones change their routes together.
#[derive(Clone)]
pub struct Gateway {
    engine: Engine,
    proxy: Proxy,
    stack: Arc<ArcSwap<Stack>>,
    probers: Arc<Probers>,
    completers: Arc<Completers>,
}

/// New operations make no sense while no upstream is tried.
struct Breakers(Proxy);

impl Gate for Breakers {
    fn closed_for(&self) -> Option<Duration> {
        self.0.closed_for()
    }
}

impl Gateway {
    /// A gateway with these routes, which also asks about unknown operations and drives on what
    /// another one left, where they say so.
    ///
    /// # Errors
    ///
    /// If a rule cannot be made of its settings.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if a route has a probe or completes its operations: both are
    /// started here.
    pub fn new(engine: Engine, proxy: Proxy, settings: &Settings) -> anyhow::Result<Self> {
        let probers = Arc::new(Probers::default());
        let stack = stack(&engine, &proxy, &probers, settings)?;
        probers.exchange(&engine, &proxy, settings)?;
        let (stack, completers) = (Arc::new(ArcSwap::from_pointee(stack)), Arc::default());
        Completers::exchange(&completers, &engine, &stack, settings)?;
        Ok(Self { engine, proxy, stack, probers, completers })
    }

    /// Exchanges the routes. Requests that are under way keep those they began with.
    ///
    /// # Errors
    ///
    /// If a rule cannot be made of its settings; the old ones stay in force.
    pub fn change_routes(&self, settings: &Settings) -> anyhow::Result<()> {
        let stack = stack(&self.engine, &self.proxy, &self.probers, settings)?;
        self.probers.exchange(&self.engine, &self.proxy, settings)?;
        self.stack.store(Arc::new(stack));
        self.completers.exchange(&self.engine, &self.stack, settings)
    }

    /// Drives on nothing more that others left. What is under way goes on.
    pub fn stop_completing(&self) {
        self.completers.stop();
    }
}

fn stack(
    engine: &Engine,
    proxy: &Proxy,
    probers: &Arc<Probers>,
    settings: &Settings,
) -> anyhow::Result<Stack> {
    let layer = rules::layer(engine.clone(), settings)?;
    let layer = layer.gate(Arc::new(Breakers(proxy.clone())));
    // What is stored must say who asked: the connection that told us is gone when it is sent again.
    let layer = layer.stored_as(crate::proxy::as_forwarded);
    let layer = layer.met_unknown(Arc::<Probers>::clone(probers)).build();
    Ok(layer.layer(Explained::new(proxy.clone(), Limits::of(settings))))
}

impl<B> Service<Request<B>> for Gateway
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ProxyBody>>;
    type Error = Infallible;
    type Future = ProtectedFuture<
        <Explained as Service<Request<RequestBody<B>>>>::Future,
        ProxyBody,
        Infallible,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        // Those that are never protected may be upgrades, and are changed on their way out.
        let is_question = parts.uri.path().starts_with(WELL_KNOWN);
        if is_question || !(parts.method.is_safe() || parts.method == Method::CONNECT) {
            introduced(&mut parts);
        }
        // No part of the stack needs to be asked whether it is ready: each is at any time.
        Stack::clone(&self.stack.load()).call(Request::from_parts(parts, body))
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}
