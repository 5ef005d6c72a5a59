//! The connection that receives the ends of operations.
//!
//! It is made for the first waiter, and remade when it breaks. Then all waiters are woken and check
//! their records: they may have missed a message.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use justonce_core::{RecordId, StoreError, StoreErrorKind, StoreResult};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use crate::endpoint::{Endpoint, Stream};
use crate::error::{Reached, store_error};
use crate::schema::Schema;
use crate::waiters::{Waiter, Waiters};

/// The first pause before a broken connection is remade.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Wakes the waiters of this process when claims end.
pub(crate) struct Subscription {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    endpoint: Endpoint,
    channel: String,
    waiters: Waiters,
    state: watch::Sender<State>,
    /// Whether a task runs, or is about to.
    has_task: AtomicBool,
}

/// Held by the task. If its runtime ends, another task is started.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        // Before another task can begin: what it says must not be taken back here.
        self.0.state.send_replace(State::Connecting);
        self.0.has_task.store(false, Ordering::Release);
        // Whoever waits for this task starts another one.
        self.0.state.send_modify(|_| {});
        self.0.waiters.wake_all();
    }
}

/// The state of the connection.
#[derive(Clone)]
enum State {
    Connecting,
    Listening,
    Broken(StoreError),
}

impl Subscription {
    pub(crate) fn new(endpoint: Endpoint, schema: &Schema) -> Self {
        let state = watch::Sender::new(State::Connecting);
        let channel = schema.name().to_owned();
        let (waiters, has_task) = Default::default();
        let shared = Shared { endpoint, channel, waiters, state, has_task };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// Registers a waiter of a record.
    pub(crate) fn register(&self, id: &RecordId) -> Waiter<'_> {
        self.shared.waiters.register(id)
    }

    /// Waits until the connection listens, or an attempt to make it fails. A connection that broke
    /// before this call is no failure: it is being remade.
    pub(crate) async fn listening(&self) -> StoreResult<()> {
        let mut state = self.shared.state.subscribe();
        let mut has_changed = false;
        loop {
            self.ensure_running();
            match &*state.borrow_and_update() {
                State::Listening => return Ok(()),
                State::Broken(error) if has_changed => return Err(error.clone()),
                State::Broken(_) | State::Connecting => {}
            }
            // The sender lives as long as this subscription.
            let _ = state.changed().await;
            has_changed = true;
        }
    }

    fn ensure_running(&self) {
        if !self.shared.has_task.swap(true, Ordering::AcqRel) {
            let running = Running(Arc::clone(&self.shared));
            let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            *task = Some(tokio::spawn(listen(running)));
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

/// Keeps a connection that listens.
async fn listen(running: Running) {
    let shared = &*running.0;
    let mut pause = FIRST_PAUSE;
    loop {
        shared.state.send_replace(State::Connecting);
        let error = match shared.endpoint.connect().await {
            Ok((client, connection)) => receive(shared, &client, connection).await,
            Err(error) => store_error(error, Reached::Nothing),
        };
        if matches!(*shared.state.borrow(), State::Listening) {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(%error, "no connection to receive the ends of operations");
        shared.state.send_replace(State::Broken(error));
        shared.waiters.wake_all();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Receives notifications on one connection until it breaks.
async fn receive(
    shared: &Shared,
    client: &Client,
    mut connection: Connection<Socket, Stream>,
) -> StoreError {
    let listen = format!("LISTEN \"{}\"", shared.channel);
    let listen = std::pin::pin!(client.batch_execute(&listen));
    let notifications = std::pin::pin!(wake_each(&shared.waiters, &mut connection));
    // The statement completes only while the connection is polled.
    let notifications = match select(listen, notifications).await {
        Either::Left((Ok(()), notifications)) => notifications,
        Either::Left((Err(error), _)) => return store_error(error, Reached::Nothing),
        Either::Right((error, _)) => return error,
    };
    shared.state.send_replace(State::Listening);
    notifications.await
}

async fn wake_each(waiters: &Waiters, connection: &mut Connection<Socket, Stream>) -> StoreError {
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                if let Some(id) = RecordId::parse(notification.payload()) {
                    waiters.wake(&id);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return store_error(error, Reached::Nothing),
            None => {
                let message = "PostgreSQL closed the connection that receives notifications";
                return StoreError::not_applied(StoreErrorKind::Unavailable, message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_name_their_record() {
        let id = RecordId::from_bytes([0xa7; 32]);
        assert_eq!(RecordId::parse(&id.to_string()), Some(id));
        for strange in ["", "a7", &"é".repeat(32), &"g".repeat(64)] {
            assert_eq!(RecordId::parse(strange), None, "{strange}");
        }
    }
}
