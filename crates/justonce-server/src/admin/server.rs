//! The server of the operators' side.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Router, middleware};
use http::{HeaderMap, Uri};
use justonce::{Clock, Engine, SystemClock, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use super::token::{Token, demand};
use super::{browser, callback, health, keys, numbers, problem, sagas};
use crate::config::Secret;
use crate::listen::{ListenLimits, Listener};

/// The longest body of a request: an outcome of the largest size as Base64, and what goes with it.
const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// What the operators look at.
pub(crate) struct Watched {
    pub(crate) engine: Engine,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) stopping: CancellationToken,
    token: Token,
    /// When the gateway started.
    pub(crate) started: Timestamp,
}

impl Watched {
    /// Whether who asks may see more than whether the gateway is well.
    pub(crate) fn may_see(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        if self.token.is_demanded() {
            self.token.is_shown(headers)
        } else {
            browser::is_by_address(uri, headers)
        }
    }
}

/// What operators and the downstream must show, to be exchanged while the gateway runs.
#[derive(Clone, Debug)]
pub(crate) struct AdminTokens {
    pub(crate) operators: Token,
    pub(crate) callbacks: Token,
}

/// Where operators connect, and what they must show.
#[derive(Clone, Debug)]
pub struct AdminAddress {
    /// The address.
    pub address: SocketAddr,
    /// The token; without one only the machine itself may look.
    pub token: Option<Secret>,
    /// What the downstream must show when it tells what became of an operation; without it, it
    /// cannot.
    pub callback_token: Option<Secret>,
    /// How long clients may take. Only [`MAX_CONNECTIONS`] of them are let in at once.
    pub limits: ListenLimits,
}

/// How many connections of operators there are at most: people, scrapers and probes are few.
pub const MAX_CONNECTIONS: usize = 1024;
/// How long requests of operators may take to finish when the gateway stops.
const GRACE: Duration = Duration::from_secs(5);

/// The operators' side, bound and not yet served.
#[derive(Debug)]
pub struct Admin {
    listener: Listener,
    router: Router,
    tokens: AdminTokens,
}

impl Admin {
    /// Binds the address.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or would be open to strangers without a token.
    pub fn bind(
        to: &AdminAddress,
        engine: Engine,
        metrics: PrometheusHandle,
        stopping: CancellationToken,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(
            to.address.ip().is_loopback() || to.token.is_some(),
            "the admin address {} is not loopback: set `admin_token` or `admin_token_file`",
            to.address
        );
        let limits = ListenLimits { max_connections: MAX_CONNECTIONS, ..to.limits };
        let listener = Listener::bind(to.address, limits)
            .with_context(|| format!("cannot listen on the admin address {}", to.address))?;
        let tokens = AdminTokens {
            operators: Token::new(to.token.as_ref()),
            callbacks: Token::new(to.callback_token.as_ref()),
        };
        let token = tokens.operators.clone();
        let started = SystemClock::new().now();
        let watched = Arc::new(Watched { engine, metrics, stopping, token, started });
        let router = router(&tokens).with_state(watched);
        Ok(Self { listener, router, tokens })
    }

    /// What must be shown, to be exchanged while it is served.
    pub(crate) fn tokens(&self) -> AdminTokens {
        self.tokens.clone()
    }

    /// The address, with the port that was given.
    ///
    /// # Errors
    ///
    /// If the system does not know it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until told to stop.
    pub async fn serve(self, stop: CancellationToken) {
        let router = self.router;
        self.listener.serve(move || router.clone(), stop.cancelled_owned(), GRACE).await;
    }
}

/// Everything there is on the operators' side, each behind its own token.
fn router(tokens: &AdminTokens) -> Router<Arc<Watched>> {
    let operators = Router::new()
        .route("/metrics", get(numbers::metrics))
        .route("/.well-known/idempotency/errors/{code}", get(problem::page))
        .route("/keys", get(keys::list))
        .route("/keys/{id}", get(keys::show))
        .route("/keys/{id}/complete", post(keys::complete))
        .route("/keys/{id}/fail", post(keys::fail))
        .route("/keys/{id}/release", post(keys::release))
        .route("/keys/{id}/expire", post(keys::expire))
        .route("/keys/{id}/erase", post(keys::erase))
        .route("/sagas", get(sagas::list))
        .route("/sagas/{id}", get(sagas::show))
        .route("/sagas/{id}/retry", post(sagas::retry));
    let operators = if tokens.operators.is_demanded() {
        operators.layer(middleware::from_fn_with_state(tokens.operators.clone(), demand))
    } else {
        operators.layer(middleware::from_fn(browser::keep_out))
    };
    let callbacks = if tokens.callbacks.is_demanded() {
        Router::new()
            .route("/callbacks/{id}", post(callback::callback))
            .layer(middleware::from_fn_with_state(tokens.callbacks.clone(), demand))
    } else {
        Router::new()
    };
    // Whether the gateway is well may be asked by anybody: those who watch it have no token.
    let health =
        Router::new().route("/healthz", get(health::healthz)).route("/readyz", get(health::readyz));
    let all = health.merge(operators).merge(callbacks);
    all.layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
}
