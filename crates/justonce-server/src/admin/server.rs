//! The server of the admin API.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Router, middleware};
use http::{HeaderMap, Uri};
use justonce::{Clock, Engine, SystemClock, Timestamp};
use justonce_admin_api::{Removal, Resolution};
use justonce_net::SocketAddress;
use justonce_proxy::{ListenSocket, Listener, ListenerHandle, ListenerSettings};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use super::token::{Token, demand};
use super::{backup, callback, health, keys, metrics, origin, problem, sagas};
use crate::config::Secret;
use crate::store_slot::StoreSlot;
use crate::upstreams::Upstreams;

/// The longest body of a request: an outcome of the largest size as Base64, and what goes with it.
const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// The parts of the gateway that the admin API shows and changes.
pub(crate) struct AdminParts {
    pub(crate) engine: Engine,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) upstreams: Upstreams,
    /// Cancelled when the gateway is told to stop: it is not ready any more.
    pub(crate) stopping: CancellationToken,
    /// The embedded store, of which backups can be made; nothing if it is another one.
    pub(crate) store: Option<StoreSlot>,
    /// The listeners whose connections are counted.
    pub(crate) listener: ListenerHandle,
}

/// What the handlers share.
pub(crate) struct AdminState {
    pub(crate) engine: Engine,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) upstreams: Upstreams,
    pub(crate) stopping: CancellationToken,
    pub(crate) store: Option<StoreSlot>,
    pub(crate) listener: ListenerHandle,
    token: Token,
    /// When the gateway started.
    pub(crate) started: Timestamp,
}

impl AdminState {
    /// Whether the caller is an operator: it presents the token or, without one, is local.
    pub(crate) fn is_operator(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        if self.token.is_demanded() {
            self.token.is_shown(headers)
        } else {
            origin::is_by_address(uri, headers)
        }
    }
}

/// The tokens of operators and of callbacks, replaced on reload.
#[derive(Clone, Debug)]
pub(crate) struct AdminTokens {
    pub(crate) operators: Token,
    pub(crate) callbacks: Token,
}

/// What operators must show, and the limits of their connections.
#[derive(Clone, Debug)]
pub(crate) struct AdminAccess {
    /// The operators' token; without one, only a loopback address is allowed.
    pub(crate) token: Option<Secret>,
    /// The token of callbacks; without one, there are none.
    pub(crate) callback_token: Option<Secret>,
    /// The limits, but for the number of connections.
    pub(crate) limits: ListenerSettings,
}

/// The most connections: people, scrapers and probes are few.
const MAX_CONNECTIONS: usize = 1024;
/// How long requests may take to finish when the gateway stops.
const GRACE: Duration = Duration::from_secs(5);

/// The admin API, bound and not yet served.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: Listener,
    router: Router,
    tokens: AdminTokens,
}

impl Admin {
    /// Listens on a socket.
    ///
    /// # Errors
    ///
    /// If it can be reached from elsewhere, and there is no token.
    pub(crate) fn on(
        socket: ListenSocket,
        to: &AdminAccess,
        parts: AdminParts,
    ) -> anyhow::Result<Self> {
        let address = socket.address().clone();
        anyhow::ensure!(
            address.ip().is_none_or(|address| address.ip().is_loopback()) || to.token.is_some(),
            "the admin address {address} is not loopback: set `admin_token` or `admin_token_file`"
        );
        let limits = ListenerSettings { max_connections: MAX_CONNECTIONS, ..to.limits };
        let listener = Listener::on(socket, limits)
            .with_context(|| format!("cannot listen on the admin address {address}"))?;
        let tokens = AdminTokens {
            operators: Token::new(to.token.as_ref()),
            callbacks: Token::new(to.callback_token.as_ref()),
        };
        let token = tokens.operators.clone();
        let started = SystemClock::new().now();
        let AdminParts { engine, metrics, upstreams, stopping, store, listener: clients } = parts;
        let state = AdminState {
            engine,
            metrics,
            upstreams,
            stopping,
            store,
            listener: clients,
            token,
            started,
        };
        let router = router(&tokens).with_state(Arc::new(state));
        Ok(Self { listener, router, tokens })
    }

    /// The tokens, to be replaced while it is served.
    pub(crate) fn tokens(&self) -> AdminTokens {
        self.tokens.clone()
    }

    /// The address, with the port that the system chose.
    pub(crate) fn address(&self) -> &SocketAddress {
        self.listener.address()
    }

    /// Lets another process take its socket over.
    pub(crate) fn handle(&self) -> ListenerHandle {
        self.listener.handle()
    }

    /// Serves until told to stop.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        let router = self.router;
        self.listener.serve(move || router.clone(), stop.cancelled_owned(), GRACE).await;
    }
}

/// All routes, each behind its token.
fn router(tokens: &AdminTokens) -> Router<Arc<AdminState>> {
    let resolve =
        |how: Resolution| post(move |admin, id, json| keys::by_operator(admin, id, json, how));
    let remove = |how: Removal| post(move |admin, id, json| keys::remove(admin, id, json, how));
    let mut operators = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/.well-known/idempotency/errors/{code}", get(problem::page))
        .route("/keys", get(keys::list))
        .route("/keys/{id}", get(keys::show))
        .route("/sagas", get(sagas::list))
        .route("/sagas/{id}", get(sagas::show))
        .route("/sagas/{id}/retry", post(sagas::retry))
        .route("/store/backup", post(backup::backup));
    for how in Resolution::ALL {
        operators = operators.route(&format!("/keys/{{id}}/{}", how.as_str()), resolve(how));
    }
    for how in Removal::ALL {
        operators = operators.route(&format!("/keys/{{id}}/{}", how.as_str()), remove(how));
    }
    let operators = if tokens.operators.is_demanded() {
        operators.layer(middleware::from_fn_with_state(tokens.operators.clone(), demand))
    } else {
        operators.layer(middleware::from_fn(origin::refuse_pages))
    };
    let callbacks = if tokens.callbacks.is_demanded() {
        Router::new()
            .route("/callbacks/{id}", post(callback::callback))
            .layer(middleware::from_fn_with_state(tokens.callbacks.clone(), demand))
    } else {
        Router::new()
    };
    // Health needs no token: probes of load balancers and of Kubernetes have none.
    let health =
        Router::new().route("/healthz", get(health::healthz)).route("/readyz", get(health::readyz));
    let all = health.merge(operators).merge(callbacks);
    all.layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
}
