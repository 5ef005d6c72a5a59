//! The connections of one upstream that wait for their next exchange.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::ProxySettings;
use super::connection::{Connection, Connector};
use super::settings::MAX_WAITING;

/// The connections of one upstream. The one used last is used next, so that a quiet upstream is
/// left with few of them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    connector: Connector,
}

/// Boxed: connections are large, and handed in and out all the time.
type Idle = Vec<Box<Connection>>;

struct Shared {
    idle: Mutex<Idle>,
    open: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
    reaping: AtomicBool,
    max_idle: usize,
    max_open: usize,
    idle_timeout: Duration,
}

/// The right to one connection; free again when dropped.
pub(super) struct Slot(Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.freed();
    }
}

enum Place {
    Idle(Box<Connection>),
    New(Slot),
}

impl Pool {
    pub(super) fn new(connector: Connector, settings: &ProxySettings) -> Self {
        let shared = Shared {
            idle: Mutex::default(),
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            reaping: AtomicBool::new(false),
            max_idle: settings.max_idle,
            max_open: settings.max_connections,
            idle_timeout: settings.idle_timeout,
        };
        Self { shared: Arc::new(shared), connector }
    }

    /// A connection that nobody else uses. A fresh one was never used before.
    ///
    /// On failure not a byte of any request was sent.
    pub(super) async fn take(&self, fresh: bool) -> Result<Box<Connection>, &'static str> {
        let place = match self.place(fresh) {
            Some(place) => place,
            None => self.wait().await?,
        };
        match place {
            Place::Idle(connection) => Ok(connection),
            Place::New(slot) => self.connector.connect(slot).await,
        }
    }

    pub(super) fn give_back(&self, mut connection: Box<Connection>) {
        if !connection.is_reusable() {
            return;
        }
        connection.rest(self.shared.idle_timeout);
        let full = {
            let mut idle = self.shared.idle();
            if idle.len() < self.shared.max_idle {
                idle.push(connection);
                None
            } else {
                Some(connection)
            }
        };
        // Closing a connection takes a while: not under the lock.
        drop(full);
        self.shared.freed();
        if !self.shared.reaping.load(Ordering::Relaxed) {
            self.shared.reap_from_now_on();
        }
    }

    /// How many connections there are, and how many of them are unused.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.shared.open.load(Ordering::Relaxed), self.shared.idle().len())
    }

    fn place(&self, fresh: bool) -> Option<Place> {
        if !fresh && let Some(connection) = self.shared.pop() {
            return Some(Place::Idle(connection));
        }
        if let Some(slot) = self.slot() {
            return Some(Place::New(slot));
        }
        // A fresh one needs room: the oldest unused one makes it.
        if fresh && let Some(oldest) = self.shared.pop_oldest() {
            drop(oldest);
            return self.slot().map(Place::New);
        }
        None
    }

    fn slot(&self) -> Option<Slot> {
        let open = &self.shared.open;
        let max = self.shared.max_open;
        let more = |now: usize| (now < max).then_some(now + 1);
        let taken = open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        taken.is_ok().then(|| Slot(Arc::clone(&self.shared)))
    }

    async fn wait(&self) -> Result<Place, &'static str> {
        let _waiting = Waiting::new(&self.shared.waiting)?;
        let place = async {
            loop {
                let freed = self.shared.freed.notified();
                if let Some(place) = self.place(false) {
                    return place;
                }
                freed.await;
            }
        };
        let place = timeout(self.connector.patience, place).await;
        place.map_err(|_| "all connections to the upstream are in use")
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was used last and may still be used. Upstreams keep connections open for
    /// different times, so older ones can outlast younger ones.
    fn pop(&self) -> Option<Box<Connection>> {
        let now = Instant::now();
        loop {
            let newest = self.idle().pop()?;
            if newest.is_fresh_at(now) {
                return Some(newest);
            }
        }
    }

    fn pop_oldest(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle();
        (!idle.is_empty()).then(|| idle.remove(0))
    }

    fn freed(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_one();
        }
    }

    fn reap_from_now_on(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.reaping.swap(true, Ordering::AcqRel) {
            runtime.spawn(reap(Arc::downgrade(self), self.idle_timeout));
        }
    }
}

/// The shortest pause between two looks for connections that are too old.
const REAP_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Closes what nobody has used for a while, as long as the pool lives.
async fn reap(pool: Weak<Shared>, idle_timeout: Duration) {
    loop {
        sleep((idle_timeout / 2).max(REAP_AT_MOST_EVERY)).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let old: Idle = {
            let mut idle = pool.idle();
            let all = std::mem::take(&mut *idle).into_iter();
            let (fresh, old) = all.partition(|one| one.is_fresh_at(now));
            *idle = fresh;
            old
        };
        drop(old);
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Result<Self, &'static str> {
        let waiting = Self(count);
        match count.fetch_add(1, Ordering::AcqRel) < MAX_WAITING {
            true => Ok(waiting),
            false => Err("too many requests wait for the upstream"),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
