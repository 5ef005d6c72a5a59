//! One or more upstreams: which one is next, and how each of them fares.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use justonce::http::AnsweredBy;
use tokio::time::Instant;

use super::breaker::Ended;
use super::connection::{Connection, Connector};
use super::pool::Pool;
use super::{Breaker, BreakerState, Change, ProxySettings, SettingsError, UpstreamAddress, tls};

/// One of the places requests go to.
pub(super) struct Upstream {
    pub(super) address: UpstreamAddress,
    /// Its address, for operators.
    pub(super) name: AnsweredBy,
    pub(super) host: Option<HeaderValue>,
    pub(super) pool: Pool,
    in_flight: AtomicUsize,
    breaker: Mutex<Breaker>,
    // Mirrors the breaker, so that nobody waits for its lock while all is well.
    troubled: AtomicBool,
}

/// All of them.
pub(super) struct Upstreams {
    all: Box<[Arc<Upstream>]>,
    turn: AtomicUsize,
    events: Option<Listener>,
}

pub(super) type Listener = Arc<dyn Fn(&BreakerEvent) + Send + Sync>;

/// The breaker of an upstream changed its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerEvent {
    /// Whose.
    pub upstream: UpstreamAddress,
    /// What it lets through from now on.
    pub to: BreakerState,
}

/// How an upstream fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Which one.
    pub upstream: UpstreamAddress,
    /// What its breaker lets through.
    pub breaker: BreakerState,
    /// How many requests are under way.
    pub in_flight: usize,
    /// How many connections there are.
    pub connections: usize,
    /// How many of them are unused.
    pub idle: usize,
}

impl Upstreams {
    pub(super) fn new(
        settings: &ProxySettings,
        events: Option<Listener>,
    ) -> Result<Self, SettingsError> {
        if settings.upstreams.is_empty() {
            return Err(SettingsError::NoUpstream);
        }
        let needs_tls = settings.upstreams.iter().any(UpstreamAddress::is_tls);
        let tls = needs_tls.then(|| tls::connector(settings.ca_file.as_deref())).transpose()?;
        let one = |address: &UpstreamAddress| {
            let connector = Connector {
                tls: tls.clone().filter(|_| address.is_tls()),
                address: address.clone(),
                patience: settings.connect_timeout,
            };
            Arc::new(Upstream {
                host: address.host_header(),
                name: AnsweredBy(address.to_string().into()),
                address: address.clone(),
                pool: Pool::new(connector, settings),
                in_flight: AtomicUsize::new(0),
                breaker: Mutex::new(Breaker::new(settings.breaker, Instant::now())),
                troubled: AtomicBool::new(false),
            })
        };
        let all = settings.upstreams.iter().map(one).collect();
        Ok(Self { all, turn: AtomicUsize::new(0), events })
    }

    /// The one with the fewest requests under way that was not tried yet and whose breaker lets
    /// a request through; they take turns when they are equal.
    pub(super) fn next(self: &Arc<Self>, tried: &mut Vec<usize>) -> Option<Turn> {
        loop {
            let at = self.least_busy(tried)?;
            let upstream = self.all.get(at)?;
            if self.all.len() > 1 {
                tried.push(at);
            }
            if upstream.admits(self) {
                upstream.in_flight.fetch_add(1, Ordering::Relaxed);
                let upstream = Arc::clone(upstream);
                return Some(Turn { all: Arc::clone(self), upstream, ended: false });
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
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
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

    /// How long no upstream will be tried; nothing if one would be, now.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        if self.all.iter().any(|one| !one.troubled.load(Ordering::Acquire)) {
            return None;
        }
        let now = Instant::now();
        let times: Option<Vec<_>> =
            self.all.iter().map(|one| one.breaker().closed_for(now)).collect();
        times?.into_iter().min()
    }

    pub(super) fn status(&self) -> Vec<UpstreamStatus> {
        let now = Instant::now();
        let status = |one: &Arc<Upstream>| {
            let (connections, idle) = one.pool.count();
            UpstreamStatus {
                upstream: one.address.clone(),
                breaker: one.breaker().state(now),
                in_flight: one.in_flight.load(Ordering::Relaxed),
                connections,
                idle,
            }
        };
        self.all.iter().map(status).collect()
    }

    fn changed(&self, upstream: &Upstream, change: Change) {
        let BreakerEvent { upstream, to } =
            BreakerEvent { upstream: upstream.address.clone(), to: change.to };
        match to {
            BreakerState::Open => tracing::warn!(%upstream, "the upstream is left alone"),
            BreakerState::HalfOpen => tracing::info!(%upstream, "the upstream gets a trial"),
            BreakerState::Closed => tracing::info!(%upstream, "the upstream is back"),
        }
        if let Some(events) = &self.events {
            events(&BreakerEvent { upstream, to });
        }
    }
}

impl Upstream {
    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, all: &Upstreams) -> bool {
        if !self.troubled.load(Ordering::Acquire) {
            return true;
        }
        let (admitted, change) = self.breaker().admit(Instant::now());
        change.into_iter().for_each(|change| all.changed(self, change));
        admitted
    }

    fn record(&self, all: &Upstreams, ended: Ended) {
        let change = {
            let mut breaker = self.breaker();
            let change = breaker.record(Instant::now(), ended);
            if let Some(change) = change {
                self.troubled.store(change.to != BreakerState::Closed, Ordering::Release);
            }
            change
        };
        change.into_iter().for_each(|change| all.changed(self, change));
    }
}

/// One upstream's turn at a request. What became of it is recorded once.
pub(super) struct Turn {
    all: Arc<Upstreams>,
    upstream: Arc<Upstream>,
    ended: bool,
}

impl Turn {
    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(super) fn ended(&mut self, ended: Ended) {
        if !std::mem::replace(&mut self.ended, true) {
            self.upstream.record(&self.all, ended);
        }
    }

    /// The upstream, for a task that goes on sending to it.
    pub(super) fn split(self) -> (Arc<Upstream>, Self) {
        (Arc::clone(&self.upstream), self)
    }

    pub(super) fn lease(self, connection: Option<Box<Connection>>) -> Lease {
        Lease { turn: self, connection }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.ended(Ended::Abandoned);
    }
}

/// A connection and its upstream, for as long as an answer is being read.
pub(super) struct Lease {
    turn: Turn,
    connection: Option<Box<Connection>>,
}

impl Lease {
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_deref_mut()
    }

    /// The exchange ended cleanly: the connection is there for the next one.
    pub(super) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.turn.upstream.pool.give_back(connection);
        }
    }
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|one| &one.address)).finish()
    }
}
