//! The layer and its settings.

use std::sync::Arc;

use justonce_core::{Engine, Entropy};
use tower::Layer;

use crate::caller_limits::CallerUsage;
use crate::claims::TokenVerifier;
use crate::read::BodyBudget;
use crate::routes::{DEFAULT_NAME, Matcher, Pattern, Route, Routes};
use crate::rule::Rule;
use crate::service::Protected;
use crate::shared::{CircuitBreaker, Shared, UnknownListener};

/// Makes the operations of an HTTP service take effect once.
///
/// ```
/// use axum::{Router, routing::post};
/// use justonce_core::{Engine, ManualClock, memory::MemoryStore};
/// use justonce_http::{Idempotency, KeyPresence, Pattern, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::new(MemoryStore::new(ManualClock::default()));
/// let api = Router::new().route("/payments", post(async || "paid"));
///
/// // The default: POST and PATCH with an `Idempotency-Key`.
/// let app: Router = api.clone().layer(Idempotency::new(engine.clone()));
///
/// // Customised: payments must have a key.
/// let rule = Rule::default().key_presence(KeyPresence::Required);
/// let layer = Idempotency::builder(engine)
///     .route("payments", Pattern::parse("POST /payments")?, rule)
///     .build();
/// let app: Router = api.layer(layer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Idempotency {
    shared: Arc<Shared>,
}

impl Idempotency {
    /// A layer with the default rule for POST and PATCH.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self::builder(engine).build()
    }

    /// A layer for a single route: all its requests have this rule, so no pattern can miss. Methods
    /// other than GET, HEAD, OPTIONS, TRACE and CONNECT are protected, wherever the router is
    /// nested.
    ///
    /// The name is part of the scope of the route's keys: give every route its own.
    ///
    /// ```
    /// use axum::extract::MatchedPath;
    /// use axum::{Router, routing::post};
    /// use justonce_core::{Engine, ManualClock, memory::MemoryStore};
    /// use justonce_http::{Idempotency, KeyPresence, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    /// let rule = Rule::default().key_presence(KeyPresence::Required);
    /// let once = Idempotency::for_route(engine, "payments", rule);
    /// let pay = async |path: MatchedPath| format!("paid at {}", path.as_str());
    ///
    /// // The layer is on the route itself, so nesting changes nothing: a request to
    /// // `/api/shops/7/payments` without a key is refused.
    /// let shops = Router::new().route("/shops/{shop}/payments", post(pay).layer(once));
    /// let app: Router = Router::new().nest("/api", shops);
    /// # }
    /// ```
    ///
    /// Such a layer does not serve `/.well-known/idempotency/…`. A layer around the router does.
    #[must_use]
    pub fn for_route(engine: Engine, name: &str, rule: Rule) -> Self {
        Self::builder(engine).every_request(name, rule).build()
    }

    /// Starts a layer with other rules.
    pub fn builder(engine: Engine) -> IdempotencyBuilder {
        let shared = Shared {
            engine,
            routes: Routes(Vec::new()),
            circuit_breaker: None,
            unknown_listener: None,
            map_stored_request: None,
            token_verifier: None,
            problems_base: String::new(),
            entropy: Entropy::from_system(),
            body_budget: BodyBudget::default(),
            caller_usage: CallerUsage::with_capacity(0),
        };
        IdempotencyBuilder { shared, default: Rule::default(), every: None, caller_usage: None }
    }
}

impl<S> Layer<S> for Idempotency {
    type Service = Protected<S>;

    fn layer(&self, inner: S) -> Protected<S> {
        Protected { shared: Arc::clone(&self.shared), inner }
    }
}

/// Collects the settings of an [`Idempotency`] layer.
#[must_use = "a builder does nothing until `build`"]
#[derive(Debug)]
pub struct IdempotencyBuilder {
    shared: Shared,
    default: Rule,
    every: Option<(Box<str>, Rule)>,
    caller_usage: Option<CallerUsage>,
}

impl IdempotencyBuilder {
    /// Adds a route; the first that matches counts. The name is part of the scope of its keys: a
    /// route with another name does not find earlier operations.
    ///
    /// The path is that of the request where the layer is. Around a router with `nest("/api", …)`
    /// it begins with `/api`; inside the nested router it does not:
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use justonce_core::{Engine, ManualClock, memory::MemoryStore};
    /// use justonce_http::{Idempotency, Pattern, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), justonce_http::PatternError> {
    /// # let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    /// let api = || Router::new().route("/payments", post(async || "paid"));
    /// let once = |pattern: &str| {
    ///     let pattern = Pattern::parse(pattern)?;
    ///     let layer = Idempotency::builder(engine.clone());
    ///     Ok::<_, justonce_http::PatternError>(
    ///         layer.route("payments", pattern, Rule::default()).build(),
    ///     )
    /// };
    /// let around: Router = Router::new().nest("/api", api()).layer(once("POST /api/payments")?);
    /// let inside: Router = Router::new().nest("/api", api().layer(once("POST /payments")?));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If no request has matched a route and one with a similar path matches another, a warning is
    /// logged once, and `idempotency_near_misses_total` counts it.
    pub fn route(mut self, name: &str, pattern: Pattern, rule: Rule) -> Self {
        self.shared.routes.0.push(Route::new(name, Matcher::Pattern(pattern), rule));
        self
    }

    /// Sets the rule for POST and PATCH requests that no route matches. Default:
    /// [`Rule::default`].
    pub fn default_rule(mut self, rule: Rule) -> Self {
        self.default = rule;
        self
    }

    /// Sets the rule for all requests that no route matches, in place of the default rule: for a
    /// layer on a single route ([`Idempotency::for_route`]).
    pub fn every_request(mut self, name: &str, rule: Rule) -> Self {
        self.every = Some((name.into(), rule));
        self
    }

    /// Sets what blocks new operations while the service is down. Default: nothing.
    pub fn circuit_breaker(mut self, breaker: Arc<dyn CircuitBreaker>) -> Self {
        self.shared.circuit_breaker = Some(breaker);
        self
    }

    /// Sets what is notified when a duplicate finds an unknown operation. Default: nothing.
    pub fn unknown_listener(mut self, listener: Arc<dyn UnknownListener>) -> Self {
        self.shared.unknown_listener = Some(listener);
        self
    }

    /// Sets a change to the head of each request that is stored ([`Rule::store_requests`]), such as
    /// the address of its client. Default: it is stored as it came.
    pub fn map_stored_request(
        mut self,
        map: impl Fn(&mut http::request::Parts) + Send + Sync + 'static,
    ) -> Self {
        self.shared.map_stored_request = Some(Arc::new(map));
        self
    }

    /// Sets what verifies the tokens of callers, for routes with a
    /// [`ScopePart::Claim`](crate::ScopePart::Claim). Default: nothing; claims that were verified
    /// in front of the layer count ([`VerifiedClaims`](crate::VerifiedClaims)).
    pub fn token_verifier(mut self, verifier: Arc<dyn TokenVerifier>) -> Self {
        self.shared.token_verifier = Some(verifier);
        self
    }

    /// Sets where it is kept what callers have used of their limits ([`Rule::caller_limits`]).
    /// Layers that share it share the limits of routes with one name. Default: a table of the
    /// layer's own.
    pub fn caller_usage(mut self, usage: CallerUsage) -> Self {
        self.caller_usage = Some(usage);
        self
    }

    /// Sets what precedes the paths of the problem pages in `type`: `https://api.example.com`.
    /// Default: nothing, so that the type is a path on the same host, where the layer serves the
    /// pages.
    pub fn problems_base(mut self, base: impl Into<String>) -> Self {
        let base: String = base.into();
        self.shared.problems_base = base.trim_end_matches('/').to_owned();
        self
    }

    /// Builds the layer.
    #[must_use]
    pub fn build(mut self) -> Idempotency {
        self.shared.routes.0.push(match self.every {
            Some((name, rule)) => Route::new(&name, Matcher::All, rule),
            None => Route::new(DEFAULT_NAME, Matcher::PostAndPatch, self.default),
        });
        let mut routes = self.shared.routes.0.iter();
        if let Some(usage) = self.caller_usage {
            self.shared.caller_usage = usage;
        } else if routes.any(|route| route.rule.caller_limits.is_some()) {
            self.shared.caller_usage = CallerUsage::default();
        }
        Idempotency { shared: Arc::new(self.shared) }
    }
}
