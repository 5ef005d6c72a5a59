//! The upstreams: which one gets the next request, and the state of each.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use justonce_http::UpstreamName;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::address::UpstreamAddress;
use super::breaker::{Breaker, BreakerState, RequestEnd};
use super::connection::{Connection, Connector, ConnectorTls};
use super::health::{CheckResult, Health, HealthCheck};
use super::http2::Http2Pool;
use super::pool::Pool;
use super::selection::choose;
use super::settings::{HostHeader, Protocol, ProxySettings, SettingsError};

/// One upstream.
pub(super) struct Upstream {
    pub(super) address: UpstreamAddress,
    /// Its address, for operators.
    pub(super) name: UpstreamName,
    pub(super) host: Option<HeaderValue>,
    pub(super) pool: Pool,
    /// The connections instead of the pool's, if HTTP/2 is spoken.
    pub(super) http2: Option<Http2Pool>,
    in_flight: AtomicUsize,
    breaker: Option<Mutex<Breaker>>,
    // Whether the breaker is not closed: its lock is not taken while it is closed.
    tripped: AtomicBool,
    health: Mutex<Health>,
    // What `health` says, without its lock.
    is_unhealthy: AtomicBool,
}

/// All upstreams of a proxy.
pub(super) struct Upstreams {
    pub(super) settings: ProxySettings,
    all: Box<[Arc<Upstream>]>,
    next: AtomicUsize,
    // How many of them are unhealthy.
    unhealthy: AtomicUsize,
}

/// The state of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// The upstream.
    pub upstream: UpstreamAddress,
    /// The state of its breaker.
    pub breaker: BreakerState,
    /// Whether it is healthy, as far as checks know; without them it is.
    pub is_healthy: bool,
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
        let tls = needs_tls.then(|| settings.tls.connector(settings.protocol)).transpose()?;
        let upstream = |address: &UpstreamAddress| {
            let with_name = |connector| {
                let name = settings.tls.name_of(address);
                name.map(|name| ConnectorTls { connector, name })
            };
            let connector = Arc::new(Connector {
                tls: tls.clone().filter(|_| address.is_tls()).map(with_name).transpose()?,
                address: address.clone(),
                timeout: settings.timeouts.connect,
                protocol: settings.protocol,
            });
            let http2 = || {
                let (max, idle) = (settings.max_connections, settings.timeouts.idle);
                Http2Pool::new(Arc::clone(&connector), max, idle)
            };
            let breaker = |settings| Mutex::new(Breaker::new(settings, Instant::now()));
            Ok(Arc::new(Upstream {
                host: match &settings.host {
                    HostHeader::Client | HostHeader::Upstream => address.host_header(),
                    HostHeader::Name(name) => Some(name.clone()),
                },
                name: UpstreamName(address.to_string().into()),
                address: address.clone(),
                http2: (settings.protocol == Protocol::Http2).then(http2),
                pool: Pool::new(connector, &settings),
                in_flight: AtomicUsize::new(0),
                breaker: settings.breaker.map(breaker),
                tripped: AtomicBool::new(false),
                health: Mutex::default(),
                is_unhealthy: AtomicBool::new(false),
            }))
        };
        let all: Result<_, SettingsError> = settings.upstreams.iter().map(upstream).collect();
        let (all, next, unhealthy) = (all?, AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { settings, all, next, unhealthy })
    }

    /// The upstream for a request: one of those not tried yet whose breaker admits it, and that is
    /// healthy unless none is.
    pub(super) fn next(&self, tried: &mut Vec<usize>) -> Option<ActiveRequest> {
        loop {
            let at = self.chosen(tried)?;
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

    fn chosen(&self, tried: &[usize]) -> Option<usize> {
        let count = self.all.len();
        if count == 1 {
            return Some(0);
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let load = |at: usize| {
            self.all.get(at).map_or(usize::MAX, |one| one.in_flight.load(Ordering::Relaxed))
        };
        let chosen = |checks_count: bool| {
            let is_out = |one: &Arc<Upstream>| checks_count && one.is_unhealthy();
            let is_free = |at| !tried.contains(&at) && !self.all.get(at).is_some_and(is_out);
            choose(self.settings.balance, count, turn, is_free, load)
        };
        match chosen(self.checks_count()) {
            // The last healthy one has become unhealthy at this moment.
            None if tried.is_empty() => chosen(false),
            chosen => chosen,
        }
    }

    /// Whether unhealthy upstreams get nothing. If none is healthy, the checks are ignored.
    fn checks_count(&self) -> bool {
        let unhealthy = self.unhealthy.load(Ordering::Relaxed);
        unhealthy > 0 && unhealthy < self.all.len()
    }

    /// Checks all upstreams once, at the same time.
    pub(super) async fn check_health(self: &Arc<Self>) -> Vec<CheckResult> {
        let mut checks = JoinSet::new();
        for at in 0..self.all.len() {
            let upstreams = Arc::clone(self);
            checks.spawn(async move { upstreams.check(at).await });
        }
        let mut results = Vec::new();
        while let Some(checked) = checks.join_next().await {
            results.extend(checked.ok().flatten());
        }
        results
    }

    async fn check(&self, at: usize) -> Option<CheckResult> {
        let (upstream, check) = (self.all.get(at)?, self.settings.health.as_ref()?);
        let asked = check.ask(upstream.pool.connector(), upstream.host.as_ref()).await;
        match upstream.checked(asked, check) {
            Some(true) => {
                self.unhealthy.fetch_sub(1, Ordering::Relaxed);
            }
            Some(false) if self.unhealthy.fetch_add(1, Ordering::Relaxed) + 1 == self.all.len() => {
                tracing::warn!(upstreams = ?self, "none of these is healthy: requests go to all");
            }
            Some(false) | None => {}
        }
        Some(CheckResult { upstream: upstream.address.clone(), failure: asked.err() })
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn any_base(&self) -> bool {
        self.all.iter().any(|one| !one.address.base().is_empty())
    }

    /// How long no upstream will be tried; nothing if one would be now.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        let checks_count = self.checks_count();
        let mut usable = self.all.iter().filter(|one| !(checks_count && one.is_unhealthy()));
        if usable.clone().any(|one| !one.tripped.load(Ordering::Acquire)) {
            return None;
        }
        let now = Instant::now();
        // Nothing as soon as one would be tried.
        let wait = |one: &Arc<Upstream>| one.breaker()?.closed_for(now);
        let first = wait(usable.next()?)?;
        usable.try_fold(first, |least, one| Some(least.min(wait(one)?)))
    }

    pub(super) fn status(&self) -> Vec<UpstreamStatus> {
        let now = Instant::now();
        let status = |one: &Arc<Upstream>| {
            let (connections, idle) =
                one.http2.as_ref().map_or_else(|| one.pool.count(), Http2Pool::count);
            UpstreamStatus {
                upstream: one.address.clone(),
                breaker: one.breaker().map_or(BreakerState::Closed, |breaker| breaker.state(now)),
                is_healthy: !one.is_unhealthy(),
                in_flight: one.in_flight.load(Ordering::Relaxed),
                connections,
                idle,
            }
        };
        self.all.iter().map(status).collect()
    }
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

    fn is_unhealthy(&self) -> bool {
        self.is_unhealthy.load(Ordering::Relaxed)
    }

    /// Counts the result of a check. Returns whether it is healthy now, if that changed.
    fn checked(&self, asked: Result<(), &'static str>, check: &HealthCheck) -> Option<bool> {
        let upstream = &self.address;
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = health.record(asked.is_ok(), check);
        drop(health);
        changed.iter().for_each(|healthy| self.is_unhealthy.store(!healthy, Ordering::Relaxed));
        match (changed, asked) {
            (Some(_), Err(why)) => tracing::warn!(%upstream, why, "unhealthy"),
            (Some(_), Ok(())) => tracing::info!(%upstream, "healthy again"),
            (None, Err(why)) => tracing::debug!(%upstream, why, "a health check failed"),
            (None, Ok(())) => {}
        }
        changed
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
