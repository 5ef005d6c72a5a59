//! What a request goes through between the listener and the upstream: the layer that makes
//! operations take effect once, problems for upstream errors, the proxy.

use std::sync::Arc;
use std::time::Duration;

use justonce::Engine;
use justonce::http::{CircuitBreaker, Protected, TokenVerifier, UnknownListener};
use justonce_proxy::make_forwarded;
use tower::Layer;

use crate::config::Settings;
use crate::identity::Callers;
use crate::rules;
use crate::upstream_problems::{RouteLimits, UpstreamProblems};
use crate::upstreams::{RouteProxies, UpstreamSet};

/// The stack of one set of routes.
pub(crate) type Stack = Protected<UpstreamProblems>;

/// Blocks new operations of a route while the breakers of all addresses of its upstream are open.
struct Breakers(Arc<RouteProxies>);

impl CircuitBreaker for Breakers {
    fn open_for(&self, route: &str) -> Option<Duration> {
        self.0.of_route(route).closed_for()
    }
}

/// Builds the stack of these routes.
///
/// # Errors
///
/// If a setting cannot be made a rule.
pub(crate) fn stack(
    engine: &Engine,
    upstreams: &UpstreamSet,
    probers: Arc<dyn UnknownListener>,
    callers: &Callers,
    settings: &Settings,
) -> anyhow::Result<Stack> {
    let proxies = Arc::new(RouteProxies::new(upstreams, settings)?);
    let verifier = Arc::clone(&callers.verifier) as Arc<dyn TokenVerifier>;
    let layer = rules::layer(engine.clone(), settings)?
        .circuit_breaker(Arc::new(Breakers(Arc::clone(&proxies))))
        // A stored request carries its caller's address: on a resend its connection is gone.
        .map_stored_request(make_forwarded)
        .unknown_listener(probers)
        // Not of this stack alone: a reload must not give all callers new limits.
        .caller_usage(callers.usage.clone())
        .token_verifier(verifier)
        .build();
    Ok(layer.layer(UpstreamProblems::new(proxies, RouteLimits::new(settings))))
}
