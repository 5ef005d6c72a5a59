//! The queue of a runtime: what arrives while a command is in flight goes into the next one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::notify::Notification;
use crate::codec::outcome_size;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::outcome::Outcome;

/// The largest outcome in a batch, in bytes: many of them make one command.
const BATCHED_OUTCOME_BYTES: usize = 16 * 1024;

/// Whether an outcome is small enough for a batch.
#[must_use]
pub fn may_batch(outcome: &Outcome) -> bool {
    outcome_size(outcome) <= BATCHED_OUTCOME_BYTES
}

/// Sends batches of requests to a server, each batch as one command.
pub trait BatchExecutor: Send + Sync + 'static {
    /// One request.
    type Request: Send + 'static;
    /// Its reply.
    type Reply: Send + 'static;
    /// What a command is sent over.
    type Connection: Send;

    /// Whether a request may join this batch. A request may always go alone.
    fn fits(&self, batch: &[Pending<Self>], next: &Self::Request) -> bool {
        let _ = (batch, next);
        true
    }

    /// A connection to the server. Requests are dequeued only once it is ready, so that cancelled
    /// calls are never sent.
    fn connect(&self) -> impl Future<Output = StoreResult<Self::Connection>> + Send;

    /// Sends a batch, which is never empty, and returns the reply to each request. A request
    /// without a reply is answered with an error: it may have been applied.
    fn execute(
        &self,
        connection: StoreResult<Self::Connection>,
        batch: Vec<Pending<Self>>,
    ) -> impl Future<Output = Replies<Self::Reply>> + Send;
}

/// A queued request, and where its reply goes.
pub struct Pending<E: BatchExecutor + ?Sized> {
    /// The request.
    pub request: E::Request,
    /// Where the reply goes.
    pub reply_to: ReplyTo<E::Reply>,
}

/// The replies to a batch.
pub type Replies<R> = Vec<(ReplyTo<R>, StoreResult<R>)>;

/// Where a reply goes.
pub struct ReplyTo<R>(oneshot::Sender<StoreResult<R>>);

impl<R> ReplyTo<R> {
    #[cfg(test)]
    pub(super) const fn of(sender: oneshot::Sender<StoreResult<R>>) -> Self {
        Self(sender)
    }

    /// Whether the call was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }

    /// Sends the reply. For a cancelled call it is dropped: its claim is released elsewhere.
    pub(super) fn send(self, reply: StoreResult<R>) {
        let _ = self.0.send(reply);
    }
}

/// How large batches get, and how many commands are in flight.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Commands in flight before requests are queued, as long as each command holds one request:
    /// a few callers do not wait for each other. With larger batches it is one.
    pub unbatched: usize,
    /// The most commands in flight.
    pub max_in_flight: usize,
    /// The most requests in one batch. When this many are queued, another command is sent beside
    /// those in flight.
    pub max_batch: usize,
    /// How long requests stay queued behind commands in flight. After it, another command is sent
    /// beside them, and one more each time it has passed again.
    pub max_wait: Duration,
}

/// The queue of one runtime.
pub(super) struct RuntimeQueue<E: BatchExecutor> {
    pub(super) executor: Arc<E>,
    pub(super) limits: BatchLimits,
    state: Mutex<QueueState<E>>,
}

pub(super) struct QueueState<E: BatchExecutor> {
    pub(super) in_flight: usize,
    /// The size of the last batch.
    last_batch: usize,
    /// How many batches were dequeued. It may wrap.
    pub(super) dequeued: u64,
    /// Whether the watchdog runs.
    pub(super) is_watched: bool,
    /// Replies that the runtime is about to deliver.
    pub(super) notifications: Vec<Weak<Notification<E::Reply>>>,
    pub(super) pending: VecDeque<Pending<E>>,
}

impl<E: BatchExecutor> Default for QueueState<E> {
    fn default() -> Self {
        Self {
            in_flight: 0,
            last_batch: 0,
            dequeued: 0,
            is_watched: false,
            notifications: Vec::new(),
            pending: VecDeque::new(),
        }
    }
}

impl<E: BatchExecutor> RuntimeQueue<E> {
    pub(super) fn new(executor: Arc<E>, limits: BatchLimits) -> Arc<Self> {
        Arc::new(Self { executor, limits, state: Mutex::default() })
    }

    pub(super) async fn call(self: &Arc<Self>, request: E::Request) -> StoreResult<E::Reply> {
        let (reply_to, reply) = oneshot::channel();
        if self.push(Pending { request, reply_to: ReplyTo(reply_to) }) {
            self.start_worker();
        }
        reply.await.unwrap_or_else(|_| {
            let message = "the task that sent this step to the store has ended";
            Err(StoreError::maybe_applied(StoreErrorKind::Stopped, message))
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, QueueState<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request. Returns whether the caller must start a worker for it, which is counted
    /// as in flight already.
    fn push(&self, pending: Pending<E>) -> bool {
        let BatchLimits { unbatched, max_in_flight, max_batch, .. } = self.limits;
        let mut state = self.state();
        state.pending.push_back(pending);
        let allowed = match state.last_batch {
            _ if state.pending.len() >= max_batch => max_in_flight,
            0 | 1 => unbatched,
            _ => 1,
        };
        let starts = state.in_flight < allowed;
        state.in_flight += usize::from(starts);
        starts
    }

    /// Ends a worker if nothing is queued.
    fn end_if_empty(&self) -> bool {
        let mut state = self.state();
        let is_empty = state.pending.is_empty();
        state.in_flight -= usize::from(is_empty);
        is_empty
    }

    /// Dequeues the next batch. Cancelled calls are dropped: they were never sent.
    fn next_batch(&self) -> Vec<Pending<E>> {
        let mut state = self.state();
        let (mut batch, mut left) = (Vec::new(), Vec::new());
        while batch.len() < self.limits.max_batch
            && let Some(pending) = state.pending.pop_front()
        {
            if pending.reply_to.is_cancelled() {
                continue;
            }
            let fits = self.executor.fits(&batch, &pending.request);
            if fits { batch.push(pending) } else { left.push(pending) }
        }
        left.into_iter().rev().for_each(|pending| state.pending.push_front(pending));
        state.last_batch = batch.len();
        state.dequeued = state.dequeued.wrapping_add(1);
        batch
    }

    async fn execute_next(&self) {
        let connection = self.executor.connect().await;
        let batch = self.next_batch();
        if !batch.is_empty() {
            let replies = self.executor.execute(connection, batch).await;
            self.notify(replies);
        }
    }

    /// Starts a worker, which was counted as in flight.
    pub(super) fn start_worker(self: &Arc<Self>) {
        self.watch();
        tokio::spawn(Worker { queue: Arc::clone(self), done: false }.run());
    }
}

impl<E: BatchExecutor + ?Sized> fmt::Debug for Pending<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for ReplyTo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyTo").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

/// Executes batches until the queue is empty.
struct Worker<E: BatchExecutor> {
    queue: Arc<RuntimeQueue<E>>,
    done: bool,
}

impl<E: BatchExecutor> Worker<E> {
    async fn run(mut self) {
        loop {
            // Callers that were notified together are about to send their next request.
            tokio::task::yield_now().await;
            if self.queue.end_if_empty() {
                self.done = true;
                return;
            }
            self.queue.execute_next().await;
        }
    }
}

impl<E: BatchExecutor> Drop for Worker<E> {
    /// The runtime shuts down, or the executor panicked. No worker may be left, so queued calls
    /// fail.
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.queue.state();
            state.in_flight -= 1;
            state.pending.clear();
        }
    }
}
