//! One subscription for the whole store to the ends of claims. It is renewed when it is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use justonce_core::{Fence, RecordId, StoreError, StoreErrorKind, StoreResult};
use redis::Msg;
use redis::aio::PubSub;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::error::{CONNECT_TIMEOUT, silent, unreachable};
use crate::lock::lock;
use crate::nodes::Nodes;
use crate::waiters::{Waiter, Waiters};

/// The pause before a lost subscription is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The bytes of a message: the name of a record and the fence of its claim.
const MESSAGE_BYTES: usize = 40;

/// The task that receives the ends of claims. It ends with this handle.
pub(crate) struct Subscription {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    nodes: Arc<Nodes>,
    waiters: Waiters,
    is_subscribed: watch::Sender<bool>,
    /// Whether a task runs, or is about to.
    has_task: AtomicBool,
}

/// Held by the task. If its runtime ends, another task is started.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        // Before another task can begin: what it says must not be taken back here.
        self.0.is_subscribed.send_replace(false);
        self.0.has_task.store(false, Ordering::Release);
        // Whoever waits for this task starts another one.
        self.0.is_subscribed.send_modify(|_| {});
        self.0.waiters.wake_all();
    }
}

impl Subscription {
    pub(crate) fn start(nodes: Arc<Nodes>) -> Self {
        let (is_subscribed, has_task) = (watch::Sender::new(false), AtomicBool::new(false));
        let shared = Shared { nodes, waiters: Waiters::default(), is_subscribed, has_task };
        let started = Self { shared: Arc::new(shared), task: Mutex::default() };
        started.ensure_running();
        started
    }

    fn ensure_running(&self) {
        if !self.shared.has_task.swap(true, Ordering::AcqRel) {
            let task = tokio::spawn(listen(Running(Arc::clone(&self.shared))));
            *lock(&self.task) = Some(task);
        }
    }

    /// Registers a waiter as soon as the subscription is up, or fails within a second.
    pub(crate) async fn register(&self, id: RecordId, fence: Fence) -> StoreResult<Waiter> {
        loop {
            self.subscribed().await?;
            let waiter = self.shared.waiters.register(id, fence);
            // If the subscription ended before the registration, nothing would wake the waiter.
            if *self.shared.is_subscribed.borrow() {
                return Ok(waiter);
            }
        }
    }

    async fn subscribed(&self) -> StoreResult<()> {
        let mut state = self.shared.is_subscribed.subscribe();
        let subscribed = async {
            loop {
                self.ensure_running();
                if *state.borrow_and_update() {
                    return;
                }
                // The sender lives as long as this subscription.
                let _ = state.changed().await;
            }
        };
        match timeout(CONNECT_TIMEOUT, subscribed).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let message = "cannot subscribe to the ends of claims: Redis is away";
                Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

/// Keeps a subscription. When one ends, all waiters are woken: they may have missed a message.
async fn listen(running: Running) {
    let Shared { nodes, waiters, is_subscribed, .. } = &*running.0;
    let mut changes = nodes.changes();
    for attempt in 0_usize.. {
        changes.mark_unchanged();
        match subscribe(nodes, attempt).await {
            Ok(subscription) => {
                is_subscribed.send_replace(true);
                receive(subscription, waiters, &mut changes).await;
                is_subscribed.send_replace(false);
                waiters.wake_all();
            }
            Err(error) => {
                tracing::debug!(%error, "cannot subscribe to the ends of claims");
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

async fn subscribe(nodes: &Nodes, attempt: usize) -> StoreResult<PubSub> {
    let client = nodes.pubsub_client(attempt).await?;
    let at = client.get_connection_info().addr();
    let what = at.to_string();
    let subscribing = async {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(nodes.layout.channel()).await?;
        Ok(subscription)
    };
    match timeout(CONNECT_TIMEOUT, subscribing).await {
        Ok(result) => result.map_err(|error| unreachable(&what, at, error)),
        Err(_) => Err(silent(&what, at)),
    }
}

/// Passes messages on until the connection ends or a primary changes.
async fn receive(subscription: PubSub, waiters: &Waiters, changes: &mut watch::Receiver<u64>) {
    let mut messages = subscription.into_on_message();
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => wake(&message, waiters),
                None => return,
            },
            _ = changes.changed() => return,
        }
    }
}

fn wake(message: &Msg, waiters: &Waiters) {
    let bytes = message.get_payload_bytes();
    if bytes.len() == MESSAGE_BYTES
        && let Some((id, fence)) = bytes.split_first_chunk()
        && let Some(fence) = fence.first_chunk()
    {
        waiters.wake(RecordId::from_bytes(*id), Fence::new(u64::from_be_bytes(*fence)));
    }
}
