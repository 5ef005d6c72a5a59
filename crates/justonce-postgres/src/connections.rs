//! Pools of connections.
//!
//! Connections are made when needed, up to a limit. If the server takes no more, callers wait for
//! one of those that exist. Connections that are idle for a while are closed, so that other
//! processes can have them.
//!
//! A connection is served by the runtime that made it, and used on that runtime only: another one
//! may be blocked, or end, while the connection is in use. The engine renews leases on a runtime of
//! its own for the same reason.

use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    Client, ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolConfig,
    PoolError, QueueMode, RecyclingMethod, Runtime,
};
use justonce_core::store::PerRuntime;
use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;

use crate::endpoint::{CONNECT_TIMEOUT, Endpoint};
use crate::error::no_connection;
use crate::permits::{Permit, Permits};
use crate::statements::CLEANED_SESSION;
use crate::tls::Connector;

/// The time limit of a step for a free connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);
/// The pause before another connection is tried at a server that took no more.
const GROW_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The time after which an idle connection is closed: another process may need it.
const IDLE: Duration = Duration::from_secs(5);

/// A pool of connections.
pub(crate) struct Connections {
    /// The idle connections of each runtime.
    pools: PerRuntime<Pool>,
    settings: Settings,
    /// A permit for each connection that is used or being made.
    permits: Permits,
    limit: usize,
    /// The permits that are withheld, since the server took no more connections.
    withheld: Mutex<Vec<Withheld>>,
    /// When idle connections were last closed.
    cleaned: Mutex<Instant>,
}

/// How connections are made.
struct Settings {
    endpoint: Endpoint,
    /// The statements that each runs when it is made.
    first: Arc<str>,
    recycling: RecyclingMethod,
}

/// A connection in use. It returns to the pool before its permit is free.
pub(crate) struct Connection {
    client: Client,
    connector: Connector,
    _permit: Permit,
}

/// Permits that are not used for a while. No timer ends it: a runtime that is blocked drives none.
struct Withheld {
    until: Instant,
    permits: Vec<Permit>,
}

/// Cancels the statement and closes its connection, if it is dropped before the statement ends.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Option<Arc<Connection>>);

impl Connections {
    /// A pool of at most `limit` connections. Each runs `first` when it is made.
    pub(crate) fn new(endpoint: &Endpoint, limit: usize, first: &[&str]) -> StoreResult<Self> {
        Self::recycled(endpoint, limit, first, RecyclingMethod::Fast)
    }

    /// The same for callers: a session is cleaned before the next caller gets it.
    pub(crate) fn for_callers(endpoint: &Endpoint, limit: usize, first: &str) -> StoreResult<Self> {
        let again = RecyclingMethod::Custom(format!("{CLEANED_SESSION}{first}"));
        Self::recycled(endpoint, limit, &[first], again)
    }

    fn recycled(
        endpoint: &Endpoint,
        limit: usize,
        first: &[&str],
        recycling: RecyclingMethod,
    ) -> StoreResult<Self> {
        let limit = limit.max(1);
        let settings =
            Settings { endpoint: endpoint.clone(), first: first.concat().into(), recycling };
        let cleaned = Mutex::new(Instant::now());
        let permits = Permits::new(limit);
        Ok(Self {
            pools: PerRuntime::new(),
            settings,
            permits,
            limit,
            withheld: Mutex::default(),
            cleaned,
        })
    }

    /// A connection, as soon as one is free.
    pub(crate) async fn get(&self) -> StoreResult<Connection> {
        self.close_idle();
        let mut until = None;
        loop {
            let permit = self.permit(&mut until).await?;
            let pool = self.pools.try_get(|| self.settings.pool(self.limit))?;
            self.make_way(&pool);
            let error = match pool.get().await {
                Ok(client) => {
                    let connector = self.settings.endpoint.connector.clone();
                    return Ok(Connection { client, connector, _permit: permit });
                }
                Err(error) => error,
            };
            if !takes_no_more(&error) || !self.withhold(permit) {
                return Err(no_connection(error));
            }
        }
    }

    /// Closes idle connections. Every use of the pool does this, and every step for the pools of
    /// reads and waiting steps: the reaper takes steps regularly. The pool of the callers'
    /// transactions keeps its connections until the next one.
    pub(crate) fn close_idle(&self) {
        let mut cleaned = lock(&self.cleaned);
        if cleaned.elapsed() >= IDLE / 2 {
            *cleaned = Instant::now();
            for pool in self.pools.all() {
                pool.retain(|_, metrics| metrics.last_used() < IDLE);
            }
        }
    }

    /// Closes idle connections of other runtimes, so that one more here stays within the limit.
    /// The caller has a permit: with the permits that are left, as many may be idle.
    fn make_way(&self, own: &Arc<Pool>) {
        let pools = self.pools.all();
        let others = || pools.iter().filter(|pool| !Arc::ptr_eq(pool, own));
        let idle: usize = others().map(|pool| pool.status().available).sum();
        let mut excess = idle.saturating_sub(self.permits.free());
        for pool in others() {
            pool.retain(|_, _| {
                let closes = excess > 0;
                excess -= usize::from(closes);
                !closes
            });
        }
    }

    /// How many connections exist.
    fn size(&self) -> usize {
        self.pools.all().iter().map(|pool| pool.status().size).sum()
    }

    /// A permit, within the time limit of a step.
    async fn permit(&self, until: &mut Option<Instant>) -> StoreResult<Permit> {
        let mut withheld_until = self.give_back();
        if let Some(permit) = self.permits.try_take() {
            return Ok(permit);
        }
        let until = *until.get_or_insert_with(|| Instant::now() + CONNECTION_WAIT);
        // It keeps its place while others are given back.
        let mut permit = pin!(self.permits.take(until));
        loop {
            let next = withheld_until.map_or(until, |end| end.min(until));
            match timeout_at(next, permit.as_mut()).await {
                Ok(Some(permit)) => return Ok(permit),
                Err(_) if next < until => withheld_until = self.give_back(),
                Ok(None) | Err(_) => {
                    let message = "all connections to PostgreSQL are in use, or none can be made";
                    return Err(StoreError::not_applied(StoreErrorKind::Unavailable, message));
                }
            }
        }
    }

    /// Gives back the permits that were withheld for long enough. Returns when the next ones are.
    fn give_back(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut withheld = lock(&self.withheld);
        withheld.retain(|withheld| withheld.until > now);
        withheld.iter().map(|withheld| withheld.until).min()
    }

    /// The server takes no more connections. If one exists or is being made, permits are withheld
    /// for a while, so that callers wait for that one instead of trying again and again.
    fn withhold(&self, permit: Permit) -> bool {
        let mut withheld = lock(&self.withheld);
        let free = self.permits.free();
        let count: usize = withheld.iter().map(|withheld| withheld.permits.len()).sum();
        let busy = self.limit.saturating_sub(free + count + 1);
        let made = self.size();
        if made == 0 && busy == 0 {
            return false;
        }
        // Each that exists may be idle, so it keeps its permit.
        let more = (made..free).map_while(|_| self.permits.try_take());
        let permits = [permit].into_iter().chain(more).collect();
        withheld.push(Withheld { until: Instant::now() + GROW_AGAIN_AFTER, permits });
        true
    }
}

impl Settings {
    /// A pool for the connections of one runtime.
    fn pool(&self, limit: usize) -> StoreResult<Pool> {
        let Endpoint { config, connector } = self.endpoint.clone();
        let manager = ManagerConfig { recycling_method: self.recycling.clone() };
        let manager = Manager::from_config(config, connector, manager);
        let first = Arc::clone(&self.first);
        let session = Hook::async_fn(move |client: &mut ClientWrapper, _| {
            let first = Arc::clone(&first);
            Box::pin(async move { client.batch_execute(&first).await.map_err(HookError::Backend) })
        });
        // The one that was used last is used first, so that superfluous ones become idle.
        let config = PoolConfig { queue_mode: QueueMode::Lifo, ..PoolConfig::new(limit) };
        let pool = Pool::builder(manager)
            .config(config)
            .runtime(Runtime::Tokio1)
            .create_timeout(Some(CONNECT_TIMEOUT))
            .post_create(session)
            .build();
        pool.map_err(|error| {
            let message = format!("no connections can be kept: {error}");
            StoreError::not_applied(StoreErrorKind::Unavailable, message)
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the server has as many connections as it takes.
fn takes_no_more(error: &PoolError) -> bool {
    match error {
        PoolError::Backend(error) => error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS),
        _ => false,
    }
}

impl Connection {
    /// Closes the connection.
    pub(crate) fn end(self) {
        drop(Object::take(self.client));
    }

    /// Closes the connection and cancels its statement: a server that works or waits for a lock
    /// does not notice that its client is gone.
    pub(crate) fn cancel(self) {
        let (token, connector) = (self.client.cancel_token(), self.connector.clone());
        self.end();
        // Without a runtime, the process is about to end.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let cancel = token.cancel_query(connector);
                if !matches!(tokio::time::timeout(CONNECT_TIMEOUT, cancel).await, Ok(Ok(()))) {
                    tracing::debug!("an abandoned statement could not be cancelled");
                }
            });
        }
    }
}

impl CancelOnDrop {
    /// A connection with a running statement. The caller drops it before this.
    pub(crate) fn watch(&mut self, connection: Connection) -> Arc<Connection> {
        let connection = Arc::new(connection);
        self.0 = Some(Arc::clone(&connection));
        connection
    }

    /// The statement has ended.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take().and_then(Arc::into_inner) {
            connection.cancel();
        }
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
