//! The upstreams: which one gets the next request, and the state of each.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use justonce_http::UpstreamName;
use justonce_net::TrustRoots;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::address::UpstreamAddress;
use super::breaker::{Breaker, BreakerState, RequestEnd};
use super::connection::{Connection, Connector};
use super::pool::Pool;
use super::settings::{ProxySettings, SettingsError};

/// One upstream.
pub(super) struct Upstream {
    pub(super) address: UpstreamAddress,
    /// Its address, for operators.
    pub(super) name: UpstreamName,
    pub(super) host: Option<HeaderValue>,
    pub(super) pool: Pool,
    in_flight: AtomicUsize,
    breaker: Option<Mutex<Breaker>>,
    // Whether the breaker is not closed: its lock is not taken while it is closed.
    tripped: AtomicBool,
}

/// All upstreams of a proxy.
pub(super) struct Upstreams {
    pub(super) settings: ProxySettings,
    all: Box<[Arc<Upstream>]>,
    next: AtomicUsize,
}

/// The state of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// The upstream.
    pub upstream: UpstreamAddress,
    /// The state of its breaker.
    pub breaker: BreakerState,
    /// How many requests are under way.
    pub in_flight: usize,
    /// How many connections are open.
    pub connections: usize,
    /// How many of them are idle.
    pub idle: usize,
}

impl Upstreams {
    pub(super) fn new(settings: ProxySettings) -> Result<Self, SettingsError> {
        if settings.upstreams.is_empty() {
            return Err(SettingsError::NoUpstream);
        }
        let needs_tls = settings.upstreams.iter().any(UpstreamAddress::is_tls);
        let tls = needs_tls.then(|| tls_connector(&settings)).transpose()?;
        let upstream = |address: &UpstreamAddress| {
            let connector = Connector {
                tls: tls.clone().filter(|_| address.is_tls()),
                address: address.clone(),
                timeout: settings.timeouts.connect,
            };
            let breaker = |settings| Mutex::new(Breaker::new(settings, Instant::now()));
            Arc::new(Upstream {
                host: address.host_header(),
                name: UpstreamName(address.to_string().into()),
                address: address.clone(),
                pool: Pool::new(connector, &settings),
                in_flight: AtomicUsize::new(0),
                breaker: settings.breaker.map(breaker),
                tripped: AtomicBool::new(false),
            })
        };
        let all = settings.upstreams.iter().map(upstream).collect();
        Ok(Self { settings, all, next: AtomicUsize::new(0) })
    }

    /// The upstream for a request: of those not tried yet whose breaker admits it, the one with the
    /// fewest requests under way; round-robin among equals.
    pub(super) fn next(&self, tried: &mut Vec<usize>) -> Option<ActiveRequest> {
        loop {
            let at = self.least_busy(tried)?;
            let upstream = self.all.get(at)?;
            if self.all.len() > 1 {
                tried.push(at);
            }
            if upstream.admits() {
                upstream.in_flight.fetch_add(1, Ordering::Relaxed);
                let upstream = Arc::clone(upstream);
                return Some(ActiveRequest { upstream, ended: false });
            }
            if self.all.len() == 1 {
                return None;
            }
        }
    }

    fn least_busy(&self, tried: &[usize]) -> Option<usize> {
        let count = self.all.len();
        if count == 1 {
            return Some(0);
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let order = (0..count).map(|step| first.wrapping_add(step) % count);
        let busy = |at: &usize| {
            self.all.get(*at).map_or(usize::MAX, |one| one.in_flight.load(Ordering::Relaxed))
        };
        order.filter(|at| !tried.contains(at)).min_by_key(busy)
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn any_base(&self) -> bool {
        self.all.iter().any(|one| !one.address.base().is_empty())
    }

    /// How long no upstream will be tried; nothing if one would be now.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        if self.all.iter().any(|one| !one.tripped.load(Ordering::Acquire)) {
            return None;
        }
        let now = Instant::now();
        let times: Option<Vec<_>> =
            self.all.iter().map(|one| one.breaker()?.closed_for(now)).collect();
        times?.into_iter().min()
    }

    pub(super) fn status(&self) -> Vec<UpstreamStatus> {
        let now = Instant::now();
        let status = |one: &Arc<Upstream>| {
            let (connections, idle) = one.pool.count();
            UpstreamStatus {
                upstream: one.address.clone(),
                breaker: one.breaker().map_or(BreakerState::Closed, |breaker| breaker.state(now)),
                in_flight: one.in_flight.load(Ordering::Relaxed),
                connections,
                idle,
            }
        };
        self.all.iter().map(status).collect()
    }
}

/// TLS with the roots of the system and those of the file.
fn tls_connector(settings: &ProxySettings) -> Result<TlsConnector, SettingsError> {
    let mut roots = TrustRoots::system();
    if let Some(path) = &settings.ca_file {
        let added = roots.with_file(path);
        roots = added.map_err(|why| SettingsError::Authorities(path.clone(), why))?;
    }
    let config = roots.client_config(b"http/1.1").map_err(SettingsError::Tls)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Upstream {
    fn breaker(&self) -> Option<MutexGuard<'_, Breaker>> {
        Some(self.breaker.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn admits(&self) -> bool {
        if !self.tripped.load(Ordering::Acquire) {
            return true;
        }
        let Some(mut breaker) = self.breaker() else { return true };
        let (admitted, changed) = breaker.admit(Instant::now());
        drop(breaker);
        changed.into_iter().for_each(|to| self.log_breaker(to));
        admitted
    }

    fn record(&self, end: RequestEnd) {
        let Some(mut breaker) = self.breaker() else { return };
        let changed = breaker.record(Instant::now(), end);
        if let Some(to) = changed {
            self.tripped.store(to != BreakerState::Closed, Ordering::Release);
        }
        drop(breaker);
        changed.into_iter().for_each(|to| self.log_breaker(to));
    }

    fn log_breaker(&self, to: BreakerState) {
        let upstream = &self.address;
        match to {
            BreakerState::Open => tracing::warn!(%upstream, "circuit breaker open"),
            BreakerState::HalfOpen => tracing::info!(%upstream, "circuit breaker half open"),
            BreakerState::Closed => tracing::info!(%upstream, "circuit breaker closed"),
        }
    }
}

/// A request that one upstream was chosen for. How it ended is recorded once.
pub(super) struct ActiveRequest {
    upstream: Arc<Upstream>,
    ended: bool,
}

impl ActiveRequest {
    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    pub(super) fn end(&mut self, end: RequestEnd) {
        if !std::mem::replace(&mut self.ended, true) {
            self.upstream.record(end);
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.end(RequestEnd::Abandoned);
    }
}

/// A connection of the pool while its response is read.
pub(super) struct PooledConnection {
    request: ActiveRequest,
    connection: Option<Box<Connection>>,
}

impl PooledConnection {
    /// Without a connection, another task drives it.
    pub(super) const fn new(request: ActiveRequest, connection: Option<Box<Connection>>) -> Self {
        Self { request, connection }
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_deref_mut()
    }

    /// The exchange ended cleanly: the next one can use the connection.
    pub(super) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.request.upstream.pool.give_back(connection);
        }
    }
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|one| &one.address)).finish()
    }
}
