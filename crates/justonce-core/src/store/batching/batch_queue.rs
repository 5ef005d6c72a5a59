//! A queue for each runtime.

use std::fmt;
use std::sync::Arc;

use super::queue::{BatchExecutor, BatchLimits, RuntimeQueue};
use crate::error::StoreResult;
use crate::store::PerRuntime;

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
