//! The server of the operators' side.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::routing::get;
use axum::{Router, middleware};
use justonce::Engine;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::token::{Token, demand};
use super::{health, numbers};
use crate::config::Secret;

/// What the operators look at.
pub(crate) struct Watched {
    pub(crate) engine: Engine,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) stopping: CancellationToken,
}

/// Where operators connect, and what they must show.
#[derive(Clone, Debug)]
pub struct AdminAddress {
    /// The address.
    pub address: SocketAddr,
    /// The token; without one only the machine itself may look.
    pub token: Option<Secret>,
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
        let watched = Arc::new(Watched { engine, metrics, stopping });
        let router = Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(numbers::metrics))
            .layer(middleware::from_fn_with_state(Token::new(to.token.as_ref()), demand))
            .with_state(watched);
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
