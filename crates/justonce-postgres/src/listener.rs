//! Those who wait for the ends of claims, and the one connection on which they are told.
//!
//! It is made when somebody waits for the first time, and made again whenever it breaks. Then all
//! who wait are woken: an end may have gone unheard, so they look again.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
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
    waiters: Mutex<HashMap<RecordId, Arc<Notify>>>,
    state: watch::Sender<State>,
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
        let shared = Shared { endpoint, channel, waiters: Mutex::default(), state };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// One more who waits for a record.
    pub(crate) fn waiter(&self, id: &RecordId) -> Waiter<'_> {
        let notify = Arc::clone(self.shared.waiters().entry(*id).or_default());
        Waiter { shared: &self.shared, id: *id, notify }
    }

    /// Waits until the connection listens.
    pub(crate) async fn listening(&self) -> StoreResult<()> {
        let mut state = self.shared.state.subscribe();
        self.start();
        loop {
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
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(listen(Arc::clone(&self.shared))));
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
        // The map's and ours: nobody else waits for this record.
        let last = Arc::strong_count(&self.notify) <= 2;
        if last && waiters.get(&self.id).is_some_and(|kept| Arc::ptr_eq(kept, &self.notify)) {
            waiters.remove(&self.id);
        }
    }
}

impl Shared {
    fn waiters(&self) -> MutexGuard<'_, HashMap<RecordId, Arc<Notify>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, id: &RecordId) {
        if let Some(notify) = self.waiters().get(id) {
            notify.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for notify in self.waiters().values() {
            notify.notify_waiters();
        }
    }
}

/// Listens until it is told to stop.
async fn listen(shared: Arc<Shared>) {
    let mut pause = FIRST_PAUSE;
    loop {
        shared.state.send_replace(State::Connecting);
        let error = match shared.endpoint.connect().await {
            Ok((client, connection)) => hear(&shared, &client, connection).await,
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
}
