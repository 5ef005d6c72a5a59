//! Connections that are kept for more than one statement.
//!
//! As many as are allowed, made when they are needed. A server that takes no more of them, since
//! others have them, is no reason to fail while there are some: then one of those is waited for.
//! Those that are not needed for a while are given up, so that others can have them.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    Client, ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolConfig,
    PoolError, QueueMode, RecyclingMethod, Runtime,
};
use justonce_core::{StoreError, StoreErrorKind, StoreResult};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;

use crate::endpoint::{CONNECT_TIMEOUT, Endpoint};
use crate::error::no_connection;
use crate::statements::CLEANED_SESSION;
use crate::tls::Connector;

/// How long a step waits for a free connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);
/// When a server that took no more connections is asked for one again.
const GROW_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A connection that nobody needed for so long is given up: another process may have none.
const IDLE: Duration = Duration::from_secs(5);

/// Connections of one kind.
pub(crate) struct Connections {
    pool: Pool,
    /// A place for each connection that may be used at once, or be in the making.
    places: Arc<Semaphore>,
    most: usize,
    /// How many places are free for nobody, as the server took no more connections.
    resting: Arc<Mutex<usize>>,
    /// When it was last looked for those that nobody needs.
    looked: Mutex<Instant>,
    /// How a server is told to stop what nobody waits for.
    connector: Connector,
}

/// A connection in use. It goes back before its place is free.
pub(crate) struct Connection {
    client: Client,
    connector: Connector,
    _place: OwnedSemaphorePermit,
}

/// Cancels a statement whose end nobody waits for, when it is dropped. Nobody gets the connection
/// then: whoever did would wait for what nobody wants any more.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Option<Arc<Connection>>);

impl Connections {
    /// At most so many, and what each of them runs first.
    pub(crate) fn new(endpoint: &Endpoint, most: usize, first: &[&str]) -> StoreResult<Self> {
        Self::recycled(endpoint, most, first, RecyclingMethod::Fast)
    }

    /// The same for callers: what one of them leaves in a session is not there for the next.
    pub(crate) fn for_callers(endpoint: &Endpoint, most: usize, first: &str) -> StoreResult<Self> {
        let again = RecyclingMethod::Custom(format!("{CLEANED_SESSION}{first}"));
        Self::recycled(endpoint, most, &[first], again)
    }

    fn recycled(
        endpoint: &Endpoint,
        most: usize,
        first: &[&str],
        recycling_method: RecyclingMethod,
    ) -> StoreResult<Self> {
        let most = most.max(1);
        let first: Arc<str> = first.concat().into();
        let Endpoint { config, connector } = endpoint.clone();
        let manager = ManagerConfig { recycling_method };
        let manager = Manager::from_config(config, connector.clone(), manager);
        let session = Hook::async_fn(move |client: &mut ClientWrapper, _| {
            let first = Arc::clone(&first);
            Box::pin(async move { client.batch_execute(&first).await.map_err(HookError::Backend) })
        });
        // Those that were used last are used first: the others are seen to be too many.
        let config = PoolConfig { queue_mode: QueueMode::Lifo, ..PoolConfig::new(most) };
        let pool = Pool::builder(manager)
            .config(config)
            .runtime(Runtime::Tokio1)
            .create_timeout(Some(CONNECT_TIMEOUT))
            .post_create(session)
            .build();
        let pool = pool.map_err(|error| {
            let message = format!("no connections can be kept: {error}");
            StoreError::not_applied(StoreErrorKind::Unavailable, message)
        })?;
        let looked = Mutex::new(Instant::now());
        let places = Arc::new(Semaphore::new(most));
        Ok(Self { pool, places, most, resting: Arc::default(), looked, connector })
    }

    /// A connection, as soon as one is free.
    pub(crate) async fn get(&self) -> StoreResult<Connection> {
        self.give_up_idle();
        let mut until = None;
        loop {
            let place = self.place(&mut until).await?;
            let error = match self.pool.get().await {
                Ok(client) => {
                    let connector = self.connector.clone();
                    return Ok(Connection { client, connector, _place: place });
                }
                Err(error) => error,
            };
            if !takes_no_more(&error) || !self.shrinks(place) {
                return Err(no_connection(error));
            }
        }
    }

    /// Ends connections that nobody needed for a while. Whoever comes next sees to it, and whoever
    /// takes a step sees to those of other kinds: there is always somebody, as lapsed claims are
    /// looked for again and again. The pool of the callers' transactions keeps what it has until
    /// the next one.
    pub(crate) fn give_up_idle(&self) {
        let mut looked = locked(&self.looked);
        if looked.elapsed() >= IDLE / 2 {
            *looked = Instant::now();
            self.pool.retain(|_, metrics| metrics.last_used() < IDLE);
        }
    }

    /// A place, within the time that a step waits in all.
    async fn place(&self, until: &mut Option<Instant>) -> StoreResult<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let until = *until.get_or_insert_with(|| Instant::now() + CONNECTION_WAIT);
        let place = timeout_at(until, Arc::clone(&self.places).acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| {
            let message = "all connections to PostgreSQL are in use, or none can be made";
            StoreError::not_applied(StoreErrorKind::Unavailable, message)
        })
    }

    /// No connection could be made for a place, as the server takes no more. If there is another
    /// one, or may soon be, there are fewer places for a while: what exists is waited for, instead
    /// of asking a server again and again that has just said no.
    fn shrinks(&self, place: OwnedSemaphorePermit) -> bool {
        let mut resting = locked(&self.resting);
        let free = self.places.available_permits();
        let busy = self.most.saturating_sub(free + *resting + 1);
        let made = self.pool.status().size;
        if made == 0 && busy == 0 {
            return false;
        }
        let mut places = place;
        // Each that exists may be idle, so it keeps its place.
        for _ in made..free {
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                places.merge(place);
            }
        }
        let count = places.num_permits();
        *resting += count;
        let resting = Arc::clone(&self.resting);
        tokio::spawn(async move {
            tokio::time::sleep(GROW_AGAIN_AFTER).await;
            let mut resting = locked(&resting);
            *resting -= count;
            drop(places);
        });
        true
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
    /// Ends the connection: nobody gets it again.
    pub(crate) fn end(self) {
        drop(Object::take(self.client));
    }

    /// Ends the connection, and what the server does on it: a server that works or waits for a lock
    /// does not notice that its client is gone.
    pub(crate) fn cancel(self) {
        let (token, connector) = (self.client.cancel_token(), self.connector.clone());
        self.end();
        // Where no runtime is left, the process is about to end.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let cancel = token.cancel_query(connector);
                if !matches!(tokio::time::timeout(CONNECT_TIMEOUT, cancel).await, Ok(Ok(()))) {
                    tracing::debug!("a statement that nobody waits for could not be cancelled");
                }
            });
        }
    }
}

impl CancelOnDrop {
    /// A connection with a statement under way. Whoever gets it drops it before this.
    pub(crate) fn watch(&mut self, connection: Connection) -> Arc<Connection> {
        let connection = Arc::new(connection);
        self.0 = Some(Arc::clone(&connection));
        connection
    }

    /// The statement has ended, whatever came of it.
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
