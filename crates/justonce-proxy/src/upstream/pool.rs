//! The connection pool of one upstream.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Connection, ConnectionSlot, Connector};
use super::settings::ProxySettings;

/// How many requests may wait for a connection of one upstream.
pub(super) const MAX_WAITING: usize = 4096;
/// The shortest pause between two searches for expired connections.
const MIN_REAP_INTERVAL: Duration = Duration::from_millis(100);

/// The connections of one upstream. The one used last is used next, so that an upstream with
/// little traffic keeps few of them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    connector: Arc<Connector>,
}

/// Boxed: connections are large, and moved in and out all the time.
type Idle = Vec<Box<Connection>>;

struct Shared {
    idle: Mutex<Idle>,
    /// One permit for each connection that may still be opened.
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Notified when a connection becomes idle while requests wait.
    returned: Notify,
    reaping: AtomicBool,
    max_idle: usize,
    max_open: usize,
    idle_timeout: Duration,
}

enum Acquired {
    Idle(Box<Connection>),
    New(ConnectionSlot),
}

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, settings: &ProxySettings) -> Self {
        let max_open = settings.max_connections.min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            idle: Mutex::default(),
            slots: Arc::new(Semaphore::new(max_open)),
            waiting: AtomicUsize::new(0),
            returned: Notify::new(),
            reaping: AtomicBool::new(false),
            max_idle: settings.max_idle,
            max_open,
            idle_timeout: settings.timeouts.idle,
        };
        Self { shared: Arc::new(shared), connector }
    }

    /// A connection for one exchange. A fresh one was never used before.
    ///
    /// On failure not a byte of any request was sent.
    pub(super) async fn acquire(&self, fresh: bool) -> Result<Box<Connection>, &'static str> {
        let acquired = match self.try_acquire(fresh) {
            Some(acquired) => acquired,
            None => self.wait().await?,
        };
        match acquired {
            Acquired::Idle(connection) => Ok(connection),
            Acquired::New(slot) => self.connector.connect(slot).await,
        }
    }

    /// What makes its connections.
    pub(super) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(super) fn give_back(&self, mut connection: Box<Connection>) {
        if !connection.is_reusable() {
            return;
        }
        let shared = &self.shared;
        connection.set_idle(shared.idle_timeout);
        let full = {
            let mut idle = shared.idle();
            if idle.len() < shared.max_idle {
                idle.push(connection);
                None
            } else {
                Some(connection)
            }
        };
        // Closing a connection takes a while: not under the lock.
        drop(full);
        if shared.waiting.load(Ordering::Acquire) > 0 {
            shared.returned.notify_one();
        }
        if !shared.reaping.load(Ordering::Relaxed) {
            shared.start_reaping();
        }
    }

    /// How many connections are open, and how many of them are idle.
    pub(super) fn count(&self) -> (usize, usize) {
        let open = self.shared.max_open - self.shared.slots.available_permits();
        (open, self.shared.idle().len())
    }

    fn try_acquire(&self, fresh: bool) -> Option<Acquired> {
        if !fresh && let Some(connection) = self.shared.pop() {
            return Some(Acquired::Idle(connection));
        }
        if let Some(slot) = self.slot() {
            return Some(Acquired::New(slot));
        }
        // Closing the oldest idle connection makes room for a fresh one.
        if fresh && let Some(oldest) = self.shared.pop_oldest() {
            drop(oldest);
            return self.slot().map(Acquired::New);
        }
        None
    }

    fn slot(&self) -> Option<ConnectionSlot> {
        Arc::clone(&self.shared.slots).try_acquire_owned().ok()
    }

    async fn wait(&self) -> Result<Acquired, &'static str> {
        let _waiting = WaitingRequest::new(&self.shared.waiting)?;
        let acquired = async {
            loop {
                let returned = self.shared.returned.notified();
                if let Some(acquired) = self.try_acquire(false) {
                    return acquired;
                }
                tokio::select! {
                    () = returned => {}
                    Ok(slot) = Arc::clone(&self.shared.slots).acquire_owned() => {
                        return Acquired::New(slot);
                    }
                }
            }
        };
        let acquired = timeout(self.connector.timeout, acquired).await;
        acquired.map_err(|_| "all connections to the upstream are in use")
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection used last that is still usable. Upstreams announce different timeouts, so an
    /// older one can outlast a younger one.
    fn pop(&self) -> Option<Box<Connection>> {
        let now = Instant::now();
        loop {
            let newest = self.idle().pop()?;
            if newest.is_usable(now) {
                return Some(newest);
            }
        }
    }

    fn pop_oldest(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle();
        (!idle.is_empty()).then(|| idle.remove(0))
    }

    fn start_reaping(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.reaping.swap(true, Ordering::AcqRel) {
            runtime.spawn(reap(Arc::downgrade(self), self.idle_timeout));
        }
    }
}

/// Closes expired connections, as long as the pool exists.
async fn reap(pool: Weak<Shared>, idle_timeout: Duration) {
    loop {
        sleep((idle_timeout / 2).max(MIN_REAP_INTERVAL)).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        // They are closed after the lock is released.
        let expired: Idle = pool.idle().extract_if(.., |one| !one.is_usable(now)).collect();
        drop(expired);
    }
}

/// Counts a request that waits for a connection.
struct WaitingRequest<'a>(&'a AtomicUsize);

impl<'a> WaitingRequest<'a> {
    fn new(count: &'a AtomicUsize) -> Result<Self, &'static str> {
        let waiting = Self(count);
        match count.fetch_add(1, Ordering::AcqRel) < MAX_WAITING {
            true => Ok(waiting),
            false => Err("too many requests wait for the upstream"),
        }
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
