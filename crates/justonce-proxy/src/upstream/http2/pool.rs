//! The HTTP/2 connections to one upstream, and the requests that wait for a place on them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::connection::{Opened, REQUESTS_PER_CONNECTION, drive};
use crate::upstream::connection::Connector;
use crate::upstream::pool::MAX_WAITING;
use crate::upstream::stream::SocketProbe;

/// How many connections are opened at once: an upstream that allows few requests on each must not
/// be met by all of them in the same moment.
const MAX_OPENING: usize = 8;
const SLOW: &str = "connecting to the upstream took too long";
const FAILED: &str = "the upstream's connection failed";
pub(super) const FULL: &str = "all connections to the upstream are in use";
pub(super) const CROWDED: &str = "too many requests wait for the upstream";

/// The HTTP/2 connections to one upstream.
pub(in crate::upstream) struct Http2Pool(Arc<Shared>);

struct Shared {
    /// Never held while anything is awaited.
    state: Mutex<State>,
    connector: Arc<Connector>,
    max_connections: usize,
    idle_timeout: Duration,
}

#[derive(Default)]
struct State {
    /// The first that has a place is used, so that those behind it can become idle.
    open: Vec<Entry>,
    /// How many connections are being opened.
    opening: usize,
    /// How many requests the upstream allowed on the connection that was opened last.
    usual: Option<usize>,
    /// What waits for a place. Nobody waits while there is one.
    waiting: VecDeque<oneshot::Sender<Result<Http2Slot, &'static str>>>,
}

/// A connection that requests share.
struct Entry {
    sender: SendRequest<Bytes>,
    probe: SocketProbe,
    link: Arc<Link>,
    taken: usize,
    allowed: usize,
    /// Since when nobody uses it, if nobody does.
    idle_since: Instant,
}

/// What the requests of a connection tell the task that drives it.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// How many have ended since that was asked last.
    freed: AtomicUsize,
    /// Whether anything of a response has come since that was asked last.
    heard: AtomicBool,
    changed: Notify,
}

impl Link {
    pub(super) fn take_freed(&self) -> usize {
        self.freed.swap(0, Ordering::AcqRel)
    }

    pub(super) fn take_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }

    /// Ready once a request has ended.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

/// A place on a connection, for one request.
pub(super) struct Http2Slot {
    pub(super) sender: SendRequest<Bytes>,
    pub(super) guard: Http2Guard,
}

/// Takes a place on a connection until it is dropped. What is left of the stream is dropped before:
/// the place is free once the end of the stream has been written.
pub(super) struct Http2Guard(Arc<Link>);

impl Http2Guard {
    /// Something of the response has come: the other end is there.
    pub(super) fn heard(&self) {
        self.0.heard.store(true, Ordering::Relaxed);
    }
}

impl Drop for Http2Guard {
    fn drop(&mut self) {
        self.0.freed.fetch_add(1, Ordering::AcqRel);
        self.0.changed.notify_one();
    }
}

impl Http2Pool {
    pub(in crate::upstream) fn new(
        connector: Arc<Connector>,
        max_connections: usize,
        idle_timeout: Duration,
    ) -> Self {
        let state = Mutex::default();
        Self(Arc::new(Shared { state, connector, max_connections, idle_timeout }))
    }

    pub(super) fn is_tls(&self) -> bool {
        self.0.connector.tls.is_some()
    }

    /// A place for one request. On failure not a byte of it was sent.
    pub(super) async fn acquire(&self) -> Result<Http2Slot, &'static str> {
        let shared = &self.0;
        let slot = {
            let mut state = shared.state();
            if let Some(slot) = state.slot() {
                return Ok(slot);
            }
            let slot = state.enqueue()?;
            shared.open_more(&mut state);
            slot
        };
        match timeout(shared.connector.timeout, slot).await {
            Ok(slot) => slot.unwrap_or(Err(FAILED)),
            Err(_) => Err(if shared.state().open.is_empty() { SLOW } else { FULL }),
        }
    }

    /// How many connections are open, and how many of them nobody uses.
    pub(in crate::upstream) fn count(&self) -> (usize, usize) {
        let state = self.0.state();
        (state.open.len(), state.open.iter().filter(|one| one.is_idle()).count())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens as many connections as are needed for what waits.
    fn open_more(self: &Arc<Self>, state: &mut State) {
        state.waiting.retain(|one| !one.is_closed());
        let usual = state.usual.unwrap_or(REQUESTS_PER_CONNECTION);
        while state.opening < MAX_OPENING
            && state.opening.saturating_mul(usual) < state.waiting.len()
            && state.open.len() + state.opening < self.max_connections
        {
            state.opening += 1;
            tokio::spawn(open(Arc::downgrade(self), Arc::clone(&self.connector)));
        }
    }

    /// A connection has been opened, or not.
    fn opened(self: &Arc<Self>, opened: Result<Opened, &'static str>) {
        let mut state = self.state();
        state.opening = state.opening.saturating_sub(1);
        match opened {
            Ok(opened) => {
                let link = Arc::<Link>::default();
                let allowed = opened.allowed().min(REQUESTS_PER_CONNECTION);
                state.usual = Some(allowed.max(1));
                state.open.push(Entry {
                    sender: opened.sender,
                    probe: opened.probe,
                    link: Arc::clone(&link),
                    taken: 0,
                    allowed,
                    idle_since: Instant::now(),
                });
                tokio::spawn(drive(opened.connection, link, PoolHandle(Arc::downgrade(self))));
                state.give_places();
                self.open_more(&mut state);
            }
            Err(why) if state.open.is_empty() && state.opening == 0 => {
                // Nothing else can bring them a place.
                for one in state.waiting.drain(..) {
                    // Ignored: it may have stopped waiting.
                    let _ = one.send(Err(why));
                }
            }
            // Not tried again at once: what waits may still get places on those that are open.
            Err(_) => {}
        }
    }
}

async fn open(pool: Weak<Shared>, connector: Arc<Connector>) {
    let opened = Opened::open(&connector).await;
    if let Some(pool) = pool.upgrade() {
        pool.opened(opened);
    }
}

impl State {
    /// A place on one of the connections, if there is one.
    fn slot(&mut self) -> Option<Http2Slot> {
        let mut at = 0;
        while let Some(entry) = self.open.get_mut(at) {
            if entry.taken >= entry.allowed {
                at += 1;
                continue;
            }
            let mut sender = entry.sender.clone();
            if entry.has_ended(&mut sender) {
                self.open.remove(at);
                continue;
            }
            entry.taken += 1;
            return Some(Http2Slot { sender, guard: Http2Guard(Arc::clone(&entry.link)) });
        }
        None
    }

    fn enqueue(
        &mut self,
    ) -> Result<oneshot::Receiver<Result<Http2Slot, &'static str>>, &'static str> {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.retain(|one| !one.is_closed());
            if self.waiting.len() >= MAX_WAITING {
                return Err(CROWDED);
            }
        }
        let (sender, slot) = oneshot::channel();
        self.waiting.push_back(sender);
        Ok(slot)
    }

    /// Gives what is free to those who wait, in the order in which they came.
    fn give_places(&mut self) {
        while !self.waiting.is_empty() {
            let Some(mut slot) = self.slot() else { return };
            while let Some(one) = self.waiting.pop_front() {
                match one.send(Ok(slot)) {
                    // It has stopped waiting.
                    Err(Ok(back)) => slot = back,
                    Ok(()) | Err(Err(_)) => break,
                }
            }
        }
    }

    fn entry(&mut self, link: &Arc<Link>) -> Option<(usize, &mut Entry)> {
        self.open.iter_mut().enumerate().find(|(_, one)| Arc::ptr_eq(&one.link, link))
    }
}

impl Entry {
    /// Whether all requests have ended. The task that drives it may not know yet.
    fn is_idle(&self) -> bool {
        self.taken <= self.link.freed.load(Ordering::Acquire)
    }

    /// Whether it takes no more requests. The socket itself is asked: a request that was written to
    /// a connection that the upstream has closed could not be told from one that it read.
    fn has_ended(&self, sender: &mut SendRequest<Bytes>) -> bool {
        let ready = sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Err(_))) || self.probe.has_ended()
    }
}

/// What the task that drives a connection tells the pool, as long as that exists.
pub(super) struct PoolHandle(Weak<Shared>);

impl PoolHandle {
    /// Some requests of a connection have ended, or its upstream allows another number of them.
    /// Returns when it has been idle for too long, unless requests use it or it is not in the pool.
    pub(super) fn settled(
        &self,
        link: &Arc<Link>,
        freed: usize,
        allowed: usize,
    ) -> Option<Instant> {
        let pool = self.0.upgrade()?;
        let mut state = pool.state();
        if let Some((_, entry)) = state.entry(link) {
            entry.taken = entry.taken.saturating_sub(freed);
            entry.allowed = allowed.min(REQUESTS_PER_CONNECTION);
            if freed > 0 && entry.taken == 0 {
                entry.idle_since = Instant::now();
            }
        }
        state.give_places();
        pool.open_more(&mut state);
        let (_, entry) = state.entry(link)?;
        (entry.taken == 0).then(|| entry.idle_since + pool.idle_timeout)
    }

    /// Takes a connection out that nobody uses. Returns whether it is out.
    pub(super) fn remove_idle(&self, link: &Arc<Link>) -> bool {
        let Some(pool) = self.0.upgrade() else { return true };
        let mut state = pool.state();
        let Some((at, entry)) = state.entry(link) else { return true };
        let is_idle = entry.taken == 0;
        if is_idle {
            state.open.remove(at);
        }
        is_idle
    }

    /// A connection has ended.
    pub(super) fn remove(&self, link: &Arc<Link>) {
        let Some(pool) = self.0.upgrade() else { return };
        let mut state = pool.state();
        if let Some((at, _)) = state.entry(link) {
            state.open.remove(at);
        }
        state.give_places();
        pool.open_more(&mut state);
    }
}

impl fmt::Debug for Http2Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Http2Pool").field(&self.count()).finish()
    }
}
