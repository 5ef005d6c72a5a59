//! The queue: what arrives while a command is in flight goes into the next one.

use std::collections::VecDeque;
use std::fmt;
use std::mem::{replace, take};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::codec::outcome_size;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::outcome::Outcome;
use crate::store::PerRuntime;

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
    fn send(self, reply: StoreResult<R>) {
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

/// A queue of requests of one kind. Requests that arrive while a command is in flight go together
/// in the next one.
///
/// Batches are never delayed to fill: a request is sent as soon as the command before it has
/// returned, or has taken too long. What is saved is the fixed cost of a command.
///
/// Requests of different runtimes do not go together: one that is blocked, or ends, delays and
/// fails no requests of the others.
///
/// ```
/// use justonce_core::StoreResult;
/// use justonce_core::store::{BatchExecutor, BatchLimits, BatchQueue, Pending, Replies};
/// use std::time::Duration;
///
/// struct Doubling;
///
/// impl BatchExecutor for Doubling {
///     type Request = u32;
///     type Reply = u32;
///     type Connection = ();
///
///     async fn connect(&self) -> StoreResult<()> {
///         Ok(())
///     }
///
///     async fn execute(&self, _: StoreResult<()>, batch: Vec<Pending<Self>>) -> Replies<u32> {
///         let reply = |pending: Pending<Self>| (pending.reply_to, Ok(2 * pending.request));
///         batch.into_iter().map(reply).collect()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> StoreResult<()> {
/// let max_wait = Duration::from_millis(2);
/// let limits = BatchLimits { unbatched: 2, max_in_flight: 8, max_batch: 32, max_wait };
/// let queue = BatchQueue::new(Doubling, limits);
/// assert_eq!(queue.call(4).await?, 8);
/// # Ok(())
/// # }
/// ```
pub struct BatchQueue<E: BatchExecutor> {
    executor: Arc<E>,
    limits: BatchLimits,
    queues: PerRuntime<Arc<RuntimeQueue<E>>>,
}

impl<E: BatchExecutor> BatchQueue<E> {
    /// An empty queue.
    pub fn new(executor: E, limits: BatchLimits) -> Self {
        Self { executor: Arc::new(executor), limits, queues: PerRuntime::new() }
    }

    #[cfg(test)]
    pub(super) fn executor(&self) -> &E {
        &self.executor
    }

    /// Sends a request, alone or in a batch, and waits for its reply.
    ///
    /// # Errors
    ///
    /// What the executor replies, and if the runtime that executes the batch shuts down.
    pub async fn call(&self, request: E::Request) -> StoreResult<E::Reply> {
        let make = || RuntimeQueue::new(Arc::clone(&self.executor), self.limits);
        self.queues.get(make).call(request).await
    }
}

impl<E: BatchExecutor> fmt::Debug for BatchQueue<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchQueue").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The queue of one runtime.
pub(super) struct RuntimeQueue<E: BatchExecutor> {
    pub(super) executor: Arc<E>,
    limits: BatchLimits,
    state: Mutex<QueueState<E>>,
}

pub(super) struct QueueState<E: BatchExecutor> {
    pub(super) in_flight: usize,
    /// The size of the last batch.
    last_batch: usize,
    /// How many batches were dequeued. It may wrap.
    dequeued: u64,
    /// Whether the watchdog runs.
    pub(super) is_watched: bool,
    /// Replies that the runtime is about to deliver.
    notifications: Vec<Weak<Notification<E::Reply>>>,
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
    fn start_worker(self: &Arc<Self>) {
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

impl<E: BatchExecutor> RuntimeQueue<E> {
    /// Delivers replies, all at once and slightly deferred.
    ///
    /// When a tokio worker wakes tasks one by one, the second wake-up also wakes an idle worker,
    /// which steals that one task, runs it and parks again: two thread switches for each task. So
    /// the replies are sent from the waker of a deferred task: the runtime wakes those in a batch
    /// and calls other workers only after all of them.
    ///
    /// This is about speed only. If a blocking handler keeps the worker from its deferred tasks,
    /// the watchdog delivers the replies; if the runtime shuts down, dropping the waker does.
    pub(super) fn notify(&self, replies: Replies<E::Reply>) {
        if replies.len() < 2 {
            return send_all(replies);
        }
        let notification = Arc::new(Notification(Mutex::new(replies)));
        self.state().notifications.push(Arc::downgrade(&notification));
        let waker = Waker::from(notification);
        // The first poll hands the waker to the runtime; the future itself is not needed.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    }
}

fn send_all<R>(replies: Replies<R>) {
    replies.into_iter().for_each(|(reply_to, reply)| reply_to.send(reply));
}

/// Replies that are delivered when this is woken or dropped.
struct Notification<R>(Mutex<Replies<R>>);

impl<R> Notification<R> {
    /// Delivers what was not delivered yet.
    fn deliver(&self) {
        send_all(take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)));
    }
}

impl<R: Send + 'static> Wake for Notification<R> {
    fn wake(self: Arc<Self>) {
        self.deliver();
    }
}

impl<R> Drop for Notification<R> {
    fn drop(&mut self) {
        self.deliver();
    }
}

impl<E: BatchExecutor> RuntimeQueue<E> {
    /// Starts the watchdog if it does not run. It ends when nothing is queued or in flight.
    ///
    /// There is one timer for all commands: a timer for each would wake the runtime's driver
    /// whenever it expires earlier than the next one known, and most commands return long before.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut state = self.state();
        if !state.is_watched {
            state.is_watched = true;
            let (dequeued, notifications) = (state.dequeued, Vec::new());
            drop(state);
            let queue = Arc::downgrade(self);
            tokio::spawn(Watchdog { queue, dequeued, notifications, done: false }.run());
        }
    }
}

struct Watchdog<E: BatchExecutor> {
    queue: Weak<RuntimeQueue<E>>,
    /// How many batches had been dequeued at the last check.
    dequeued: u64,
    /// Replies that were about to be delivered at the last check.
    notifications: Vec<Weak<Notification<E::Reply>>>,
    done: bool,
}

impl<E: BatchExecutor> Watchdog<E> {
    async fn run(mut self) {
        while let Some(max_wait) = self.queue.upgrade().map(|queue| queue.limits.max_wait) {
            sleep(max_wait).await;
            let Some(queue) = self.queue.upgrade() else { break };
            if self.check(&queue) {
                break;
            }
        }
        self.done = true;
    }

    /// Does what is overdue since the last check. Returns whether nothing is left to watch.
    fn check(&mut self, queue: &Arc<RuntimeQueue<E>>) -> bool {
        let mut state = queue.state();
        let is_stuck = state.dequeued == self.dequeued && !state.pending.is_empty();
        let starts = is_stuck && state.in_flight < queue.limits.max_in_flight;
        state.in_flight += usize::from(starts);
        self.dequeued = state.dequeued;
        let late = replace(&mut self.notifications, take(&mut state.notifications));
        let is_over = state.in_flight == 0 && self.notifications.is_empty();
        state.is_watched = !is_over;
        drop(state);
        for notification in late {
            if let Some(notification) = notification.upgrade() {
                notification.deliver();
            }
        }
        if starts {
            queue.start_worker();
        }
        is_over
    }
}

impl<E: BatchExecutor> Drop for Watchdog<E> {
    /// Its runtime shuts down. The next command starts another watchdog on its own runtime.
    fn drop(&mut self) {
        if !self.done
            && let Some(queue) = self.queue.upgrade()
        {
            queue.state().is_watched = false;
        }
    }
}
