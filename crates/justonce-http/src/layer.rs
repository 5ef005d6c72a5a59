//! The layer and its settings.

use std::fmt;
use std::sync::Arc;

use justonce_core::{Engine, Entropy};
use tower::Layer;

use crate::pattern::Pattern;
use crate::room::Room;
use crate::routes::{DEFAULT_NAME, Reach, Route, Routes};
use crate::rule::Rule;
use crate::service::Protected;
use crate::shared::{Gate, MetUnknown, Shared, StoredAs};

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

    /// A layer for a single route: every request that goes through it falls under this rule, so
    /// there is no pattern that could miss. Whatever the path and wherever the router is nested,
    /// all methods but GET, HEAD, OPTIONS, TRACE and CONNECT are protected.
    ///
    /// The name is part of the namespace of the route's keys: give every route its own.
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
    /// // The layer lies on the route itself, and nesting changes nothing: a request to
    /// // `/api/shops/7/payments` without a key is refused.
    /// let shops = Router::new().route("/shops/{shop}/payments", post(pay).layer(once));
    /// let app: Router = Router::new().nest("/api", shops);
    /// # }
    /// ```
    ///
    /// The questions about keys, `/.well-known/idempotency/…`, do not come by such a route: put a
    /// layer around the router if callers shall ask them.
    #[must_use]
    pub fn for_route(engine: Engine, name: &str, rule: Rule) -> Self {
        Self::builder(engine).every_request(name, rule).build()
    }

    /// Starts a layer with other rules.
    pub fn builder(engine: Engine) -> IdempotencyBuilder {
        IdempotencyBuilder {
            engine,
            routes: Vec::new(),
            default: Rule::default(),
            every: None,
            gate: None,
            met_unknown: None,
            stored_as: None,
            base: String::new(),
        }
    }
}

impl<S> Layer<S> for Idempotency {
    type Service = Protected<S>;

    fn layer(&self, inner: S) -> Protected<S> {
        Protected::new(Arc::clone(&self.shared), inner)
    }
}

/// Collects the settings of an [`Idempotency`] layer.
#[must_use = "a builder does nothing until `build`"]
pub struct IdempotencyBuilder {
    engine: Engine,
    routes: Vec<Arc<Route>>,
    default: Rule,
    every: Option<(Box<str>, Rule)>,
    gate: Option<Arc<dyn Gate>>,
    met_unknown: Option<Arc<dyn MetUnknown>>,
    stored_as: Option<StoredAs>,
    base: String,
}

impl IdempotencyBuilder {
    /// One more route; the first that matches counts. The name is part of the namespace of its
    /// keys: a route with another name knows nothing of the operations before.
    ///
    /// The path is that of the request where the layer lies. Around a router with
    /// `nest("/api", …)` it begins with `/api`; inside the nested one it does not:
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
    /// A route that no request has matched while a similar path came by is warned about once, and
    /// counted as `idempotency_near_misses_total`. On a single route no pattern can miss:
    /// [`Idempotency::for_route`].
    pub fn route(mut self, name: &str, pattern: Pattern, rule: Rule) -> Self {
        self.routes.push(Route::new(name, Reach::Pattern(pattern), rule));
        self
    }

    /// The rule for POST and PATCH requests that no route is for. Default: [`Rule::default`].
    pub fn default_rule(mut self, rule: Rule) -> Self {
        self.default = rule;
        self
    }

    /// The rule for all requests that no route is for, whatever their path, in the place of the
    /// default rule: for a layer on a single route ([`Idempotency::for_route`]). The methods are
    /// all but GET, HEAD, OPTIONS, TRACE and CONNECT.
    pub fn every_request(mut self, name: &str, rule: Rule) -> Self {
        self.every = Some((name.into(), rule));
        self
    }

    /// Somebody who knows when executing makes no sense. Default: nobody.
    pub fn gate(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Somebody who hears that a duplicate met an unknown operation. Default: nobody.
    pub fn met_unknown(mut self, listener: Arc<dyn MetUnknown>) -> Self {
        self.met_unknown = Some(listener);
        self
    }

    /// Changes the head of each request that is stored ([`Rule::completed`]), for what is said
    /// about a request beside its headers: who sent it, for example. Default: it is stored as it
    /// came.
    pub fn stored_as(
        mut self,
        change: impl Fn(&mut http::request::Parts) + Send + Sync + 'static,
    ) -> Self {
        self.stored_as = Some(Arc::new(change));
        self
    }

    /// What stands before the paths of the problems' pages in their `type`:
    /// `https://api.example.com`. Default: nothing, so that the type is a path on the same host,
    /// where the layer serves the pages.
    pub fn problems_base(mut self, base: impl Into<String>) -> Self {
        self.base = base.into();
        self
    }

    /// Builds the layer.
    #[must_use]
    pub fn build(mut self) -> Idempotency {
        self.routes.push(match self.every {
            Some((name, rule)) => Route::new(&name, Reach::Every, rule),
            None => Route::new(DEFAULT_NAME, Reach::Rest, self.default),
        });
        let routes = Routes { list: self.routes };
        let base = self.base.trim_end_matches('/').into();
        let entropy = Entropy::from_system();
        let shared = Shared {
            engine: self.engine,
            routes,
            gate: self.gate,
            met_unknown: self.met_unknown,
            stored_as: self.stored_as,
            base,
            entropy,
            room: Room::default(),
        };
        Idempotency { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder")
            .field("routes", &self.routes.len())
            .finish_non_exhaustive()
    }
}
