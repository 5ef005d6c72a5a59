//! The server of the operators' side.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Router, middleware};
use justonce::{Clock, Engine, SystemClock, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::token::{Token, demand};
use super::{browser, callback, health, keys, numbers, problem, sagas};
use crate::config::Secret;

/// The longest body of a request: an outcome of the largest size as Base64, and what goes with it.
const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// What the operators look at.
pub(crate) struct Watched {
    pub(crate) engine: Engine,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) stopping: CancellationToken,
    /// When the gateway started.
    pub(crate) started: Timestamp,
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
}

/// The operators' side, bound and not yet served.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    router: Router,
}

impl Admin {
    /// Binds the address.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or would be open to strangers without a token.
    pub async fn bind(
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
        let listener = TcpListener::bind(to.address)
            .await
            .with_context(|| format!("cannot listen on the admin address {}", to.address))?;
        let started = SystemClock::new().now();
        let watched = Arc::new(Watched { engine, metrics, stopping, started });
        let router = router(to).with_state(watched);
        Ok(Self { listener, router })
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
    ///
    /// # Errors
    ///
    /// If the listener fails.
    pub async fn serve(self, stop: CancellationToken) -> std::io::Result<()> {
        axum::serve(self.listener, self.router).with_graceful_shutdown(stop.cancelled_owned()).await
    }
}

/// Everything there is on the operators' side, each behind its own token.
fn router(to: &AdminAddress) -> Router<Arc<Watched>> {
    let keys = Router::new()
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
    let keys = match &to.token {
        Some(_) => keys,
        None => keys.layer(middleware::from_fn(browser::keep_out)),
    };
    let operators = Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(numbers::metrics))
        .route("/.well-known/idempotency/errors/{code}", get(problem::page))
        .merge(keys)
        .layer(middleware::from_fn_with_state(Token::new(to.token.as_ref()), demand));
    let all = match &to.callback_token {
        None => operators,
        Some(token) => operators.merge(
            Router::new()
                .route("/callbacks/{id}", post(callback::callback))
                .layer(middleware::from_fn_with_state(Token::new(Some(token)), demand)),
        ),
    };
    all.layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
}
