//! Hearing the ends of claims: one connection for the whole store, which comes back by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use justonce_core::{Fence, RecordId, StoreError, StoreErrorKind, StoreResult};
use redis::Msg;
use redis::aio::PubSub;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::link::{CONNECT_TIMEOUT, silent};
use crate::nodes::Nodes;
use crate::waiters::{Place, Waiters};

/// How long until a lost subscription is tried again. A server that is back is found this soon.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The bytes of a message: the name of a record and the fence of its claim.
const MESSAGE_BYTES: usize = 40;

/// The task that hears the ends of claims. It ends with this handle.
#[derive(Debug)]
pub(crate) struct Subscription {
    heard: Arc<Heard>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Whom it hears, and whom it wakes.
#[derive(Debug)]
struct Heard {
    nodes: Arc<Nodes>,
    waiters: Waiters,
    hears: watch::Sender<bool>,
    /// Whether a task hears, or is about to.
    is_served: AtomicBool,
}

/// The task's own end. If its runtime ends, another one goes on.
struct Hearing(Arc<Heard>);

impl Drop for Hearing {
    fn drop(&mut self) {
        self.0.is_served.store(false, Ordering::Release);
        self.0.hears.send_replace(false);
        self.0.waiters.wake_all();
    }
}

impl Subscription {
    pub(crate) fn start(nodes: Arc<Nodes>, waiters: Waiters) -> Self {
        let (hears, is_served) = (watch::Sender::new(false), AtomicBool::new(false));
        let heard = Arc::new(Heard { nodes, waiters, hears, is_served });
        let started = Self { heard, task: Mutex::default() };
        started.go_on();
        started
    }

    fn go_on(&self) {
        if !self.heard.is_served.swap(true, Ordering::AcqRel) {
            let task = tokio::spawn(listen(Hearing(Arc::clone(&self.heard))));
            *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        }
    }

    /// Takes a place among those who wait, once the ends of claims are heard. That does not take
    /// long, or is an error.
    pub(crate) async fn enter(
        &self,
        waiters: &Waiters,
        id: RecordId,
        fence: Fence,
    ) -> StoreResult<Place> {
        loop {
            self.go_on();
            self.hears().await?;
            let place = waiters.enter(id, fence);
            // Who enters after the subscription ended is woken by nobody, and enters again.
            if *self.heard.hears.borrow() {
                return Ok(place);
            }
        }
    }

    async fn hears(&self) -> StoreResult<()> {
        let mut hears = self.heard.hears.subscribe();
        match timeout(CONNECT_TIMEOUT, hears.wait_for(|hears| *hears)).await {
            Ok(Ok(_)) => Ok(()),
            _ => {
                let message = "the ends of claims cannot be heard: Redis is away";
                Err(StoreError::not_applied(StoreErrorKind::Unavailable, message))
            }
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

/// Subscribes again and again. When a subscription ends, all who wait look again: they may miss
/// something.
async fn listen(hearing: Hearing) {
    let Heard { nodes, waiters, hears, .. } = &*hearing.0;
    let mut changes = nodes.changes();
    for turn in 0_usize.. {
        changes.mark_unchanged();
        match subscribe(nodes, turn).await {
            Ok(subscription) => {
                hears.send_replace(true);
                hear(subscription, waiters, &mut changes).await;
                hears.send_replace(false);
                waiters.wake_all();
            }
            Err(error) => {
                tracing::debug!(%error, "cannot subscribe to the ends of claims");
                sleep(TRY_AGAIN_AFTER).await;
            }
        }
    }
}

async fn subscribe(nodes: &Nodes, turn: usize) -> StoreResult<PubSub> {
    let client = nodes.listening_post(turn).await?;
    let at = client.get_connection_info().addr();
    let what = at.to_string();
    let subscribing = async {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(nodes.layout.channel()).await?;
        Ok(subscription)
    };
    match timeout(CONNECT_TIMEOUT, subscribing).await {
        Ok(result) => result.map_err(|error| crate::error::unreachable(&what, at, error)),
        Err(_) => Err(silent(&what, at)),
    }
}

/// Hands on what is heard until the connection ends or a primary changes.
async fn hear(subscription: PubSub, waiters: &Waiters, changes: &mut watch::Receiver<u64>) {
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
    let Some((id, rest)) = bytes.split_first_chunk::<32>() else {
        return;
    };
    let Some(fence) = rest.first_chunk::<8>().filter(|_| bytes.len() == MESSAGE_BYTES) else {
        return;
    };
    waiters.wake(RecordId::from_bytes(*id), Fence::new(u64::from_be_bytes(*fence)));
}
