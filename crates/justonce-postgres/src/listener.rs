//! Those who wait for the ends of claims, and the one connection on which they are told.
//!
//! It is made when somebody waits for the first time, and made again whenever it breaks. Then all
//! who wait are woken: an end may have gone unheard, so they look again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use justonce_core::{RecordId, StoreError, StoreErrorKind, StoreResult};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use crate::endpoint::{Endpoint, Stream};
use crate::error::{Reached, store_error};
use crate::schema::Schema;

/// The pause before a broken connection is made again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Tells those who wait in this process that a claim has ended.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    endpoint: Endpoint,
    channel: String,
    waiters: Mutex<HashMap<RecordId, Waited>>,
    state: watch::Sender<State>,
    /// Whether a task listens, or is about to.
    is_served: AtomicBool,
}

/// A record that somebody waits for.
#[derive(Default)]
struct Waited {
    count: usize,
    notify: Arc<Notify>,
}

/// The task's own end. If its runtime ends, another one goes on.
struct Listening(Arc<Shared>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.is_served.store(false, Ordering::Release);
        self.0.state.send_replace(State::Connecting);
        self.0.wake_all();
    }
}

/// How the connection stands.
#[derive(Clone, Debug)]
enum State {
    Connecting,
    Listening,
    Broken(StoreError),
}

impl Listener {
    pub(crate) fn new(endpoint: Endpoint, schema: &Schema) -> Self {
        let state = watch::Sender::new(State::Connecting);
        let channel = schema.name().to_owned();
        let (waiters, is_served) = Default::default();
        let shared = Shared { endpoint, channel, waiters, state, is_served };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// One more who waits for a record.
    pub(crate) fn waiter(&self, id: &RecordId) -> Waiter<'_> {
        let mut waiters = self.shared.waiters();
        let waited = waiters.entry(*id).or_default();
        waited.count += 1;
        let notify = Arc::clone(&waited.notify);
        Waiter { shared: &self.shared, id: *id, notify }
    }

    /// Waits until the connection listens.
    pub(crate) async fn listening(&self) -> StoreResult<()> {
        let mut state = self.shared.state.subscribe();
        loop {
            self.start();
            match &*state.borrow_and_update() {
                State::Listening => return Ok(()),
                State::Broken(error) => return Err(error.clone()),
                State::Connecting => {}
            }
            // The sender lives as long as this listener does.
            let _ = state.changed().await;
        }
    }

    fn start(&self) {
        if !self.shared.is_served.swap(true, Ordering::AcqRel) {
            let listening = Listening(Arc::clone(&self.shared));
            let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            *task = Some(tokio::spawn(listen(listening)));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("channel", &self.shared.channel).finish_non_exhaustive()
    }
}

/// Somebody who waits for a record.
pub(crate) struct Waiter<'a> {
    shared: &'a Shared,
    id: RecordId,
    notify: Arc<Notify>,
}

impl Waiter<'_> {
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiters = self.shared.waiters();
        if let Entry::Occupied(mut waited) = waiters.entry(self.id) {
            waited.get_mut().count -= 1;
            if waited.get().count == 0 {
                waited.remove();
            }
        }
    }
}

impl Shared {
    fn waiters(&self) -> MutexGuard<'_, HashMap<RecordId, Waited>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, id: &RecordId) {
        if let Some(waited) = self.waiters().get(id) {
            waited.notify.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for waited in self.waiters().values() {
            waited.notify.notify_waiters();
        }
    }
}

/// Listens until it is told to stop.
async fn listen(listening: Listening) {
    let shared = &*listening.0;
    let mut pause = FIRST_PAUSE;
    loop {
        shared.state.send_replace(State::Connecting);
        let error = match shared.endpoint.connect().await {
            Ok((client, connection)) => hear(shared, &client, connection).await,
            Err(error) => store_error(error, Reached::Nothing),
        };
        if matches!(*shared.state.borrow(), State::Listening) {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(%error, "no connection to wait for the ends of operations");
        shared.state.send_replace(State::Broken(error));
        shared.wake_all();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Hears what one connection says until it breaks.
async fn hear(
    shared: &Shared,
    client: &Client,
    mut connection: Connection<Socket, Stream>,
) -> StoreError {
    let subscribe = format!("LISTEN \"{}\"", shared.channel);
    let subscribed = std::pin::pin!(client.batch_execute(&subscribe));
    let heard = std::pin::pin!(next(shared, &mut connection));
    // The connection must be polled for the statement to go through.
    let heard = match select(subscribed, heard).await {
        Either::Left((Ok(()), heard)) => heard,
        Either::Left((Err(error), _)) => return store_error(error, Reached::Nothing),
        Either::Right((error, _)) => return error,
    };
    shared.state.send_replace(State::Listening);
    heard.await
}

/// Wakes whoever is meant, until the connection breaks.
async fn next(shared: &Shared, connection: &mut Connection<Socket, Stream>) -> StoreError {
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(told))) => {
                if let Some(id) = named(told.payload()) {
                    shared.wake(&id);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return store_error(error, Reached::Nothing),
            None => {
                let message = "PostgreSQL closed the connection on which ends are announced";
                return StoreError::not_applied(StoreErrorKind::Unavailable, message);
            }
        }
    }
}

/// The record that a notification is about.
fn named(payload: &str) -> Option<RecordId> {
    let mut bytes = [0_u8; 32];
    if payload.len() != 2 * bytes.len() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(payload.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(RecordId::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_name_their_record() {
        let id = RecordId::from_bytes([0xa7; 32]);
        assert_eq!(named(&id.to_string()), Some(id));
        for strange in ["", "a7", &"é".repeat(32), &"g".repeat(64)] {
            assert_eq!(named(strange), None, "{strange}");
        }
    }

    #[test]
    fn those_who_stop_waiting_at_once_leave_nothing_behind() {
        let endpoint = Endpoint::of("postgres://nobody@127.0.0.1/none").unwrap();
        let listener = Listener::new(endpoint, &Schema::new("justonce").unwrap());
        let id = RecordId::from_bytes([7; 32]);
        let (first, second) = (listener.waiter(&id), listener.waiter(&id));
        // The first has said that it goes, and its own end comes only behind the second's: two
        // threads that go at once.
        let lingers = Arc::clone(&first.notify);
        drop(first);
        drop(second);
        drop(lingers);
        assert_eq!(listener.shared.waiters().len(), 0, "nobody waits any more");
    }
}
