//! Group commit: many callers, one writer thread, one sync for all that came together.
//!
//! Callers [`enqueue`](GroupCommit::enqueue) and await their [`Ticket`]. The writer takes all that
//! has come, hands it to the [`Sink`] and completes the ticket of the whole batch. While it syncs,
//! the next batch fills. Items without a waiting caller are
//! [deferred](GroupCommit::enqueue_deferred).

use std::fmt;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::commit_delay::CommitDelay;

/// How long deferred items wait for others, to share their sync.
const MAX_DEFERRAL: Duration = Duration::from_millis(2);

/// The error after a panic of the writer thread.
const PANICKED: &str = "the writer thread has panicked; open the store again";

/// What makes batches durable.
pub trait Sink<T>: Send + 'static {
    /// Writes and syncs a batch. After an error nothing more is committed.
    ///
    /// # Errors
    ///
    /// A message for the operator.
    fn commit(&mut self, batch: &mut Vec<T>) -> Result<(), String>;

    /// Called after the batch's callers have been notified.
    fn committed(&mut self, batch: Vec<T>) {
        drop(batch);
    }

    /// Called when the writer thread panics, before its callers are notified: nothing more is
    /// committed.
    fn panicked(&mut self, why: &str) {
        let _ = why;
    }
}

/// Completed by the writer once the batch is on disk, or never will be.
#[derive(Clone)]
pub struct Ticket(Arc<Batch>);

#[derive(Default)]
struct Batch {
    result: OnceLock<Result<(), Arc<str>>>,
    notify: Notify,
}

impl Ticket {
    /// Waits until the batch is on disk.
    ///
    /// # Errors
    ///
    /// What the sink said. The batch may or may not be on disk then.
    pub async fn durable(&self) -> Result<(), Arc<str>> {
        loop {
            let notified = self.0.notify.notified();
            if let Some(result) = self.0.result.get() {
                return result.clone();
            }
            notified.await;
        }
    }

    /// Whether the batch is known to be on disk.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        matches!(self.0.result.get(), Some(Ok(())))
    }

    fn complete(&self, result: Result<(), Arc<str>>) {
        // The first result counts: a panic may follow it.
        let _ = self.0.result.set(result);
        self.0.notify.notify_waiters();
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.0.result.get()).finish()
    }
}

/// The queue in front of the writer thread.
pub struct GroupCommit<T> {
    shared: Arc<Shared<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    arrived: Condvar,
}

struct Queue<T> {
    items: Vec<T>,
    /// How many of the items a caller waits for.
    urgent: usize,
    ticket: Ticket,
    /// The writer sleeps and must be woken when this many urgent items are there.
    wake_at: Option<usize>,
    closing: bool,
}

/// A batch that is ready to be written.
struct TakenBatch<T> {
    items: Vec<T>,
    urgent: usize,
    ticket: Ticket,
    waited: bool,
}

/// The queue is closed: the store was closed, or has stopped after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl<T: Send + 'static> GroupCommit<T> {
    /// Starts the writer thread.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(sink: impl Sink<T>, delay: CommitDelay) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let writer = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("justonce-commit".into()).spawn(move || {
                WriterThread { shared: writer, sink, writing: None }.run(delay);
            })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// The queue without a thread: the writer's steps are taken by who has the writer.
    #[cfg(feature = "simulation")]
    pub(crate) fn driven<S: Sink<T>>(sink: S) -> (Self, WriterThread<T, S>) {
        let shared = Arc::new(Shared::new());
        let writer = WriterThread { shared: Arc::clone(&shared), sink, writing: None };
        (Self { shared, thread: Mutex::default() }, writer)
    }

    /// Adds an item to the batch that is gathering. Items are committed in the order in which
    /// they were added.
    ///
    /// # Errors
    ///
    /// If the queue is closed.
    pub fn enqueue(&self, item: T) -> Result<Ticket, Closed> {
        let mut queue = self.shared.queue();
        if queue.closing {
            return Err(Closed);
        }
        queue.items.push(item);
        queue.urgent += 1;
        let ticket = queue.ticket.clone();
        if queue.wake_at.is_some_and(|enough| queue.urgent >= enough) {
            queue.wake_at = None;
            drop(queue);
            self.shared.arrived.notify_one();
        }
        Ok(ticket)
    }

    /// Adds an item that no caller waits for: it shares the sync of the next urgent ones. It gets a
    /// sync of its own only if none come for a moment, so it delays no caller.
    ///
    /// # Errors
    ///
    /// If the queue is closed.
    pub fn enqueue_deferred(&self, item: T) -> Result<Ticket, Closed> {
        let mut queue = self.shared.queue();
        if queue.closing {
            return Err(Closed);
        }
        queue.items.push(item);
        let ticket = queue.ticket.clone();
        // A writer that sleeps without a timeout must be woken for the first item.
        let first = queue.items.len() == 1 && queue.wake_at.is_some();
        drop(queue);
        if first {
            self.shared.arrived.notify_one();
        }
        Ok(ticket)
    }

    /// How many items wait for the writer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queue().items.len()
    }

    /// Commits what is queued and ends the writer thread. Blocks until it has ended.
    pub fn close(&self) {
        {
            let mut queue = self.shared.queue();
            queue.closing = true;
            queue.wake_at = None;
        }
        self.shared.arrived.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A writer that panicked has notified its callers.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for GroupCommit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    fn new() -> Self {
        Self {
            queue: Mutex::new(Queue {
                items: Vec::new(),
                urgent: 0,
                ticket: Ticket(Arc::default()),
                wake_at: None,
                closing: false,
            }),
            arrived: Condvar::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch: everything that has come, after the delay that pays.
    fn next_batch(&self, delay: &CommitDelay) -> Option<TakenBatch<T>> {
        let mut queue = self.queue();
        while queue.items.is_empty() {
            if queue.closing {
                return None;
            }
            queue.wake_at = Some(1);
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.urgent == 0 {
            queue = self.gather(queue, 1, MAX_DEFERRAL);
        }
        let worth = Some(queue.urgent).filter(|urgent| *urgent > 0);
        let worth = worth.and_then(|urgent| delay.worth_waiting(urgent));
        if let Some((enough, wait)) = worth {
            queue = self.gather(queue, enough, wait);
        }
        Some(Self::take(&mut queue, worth.is_some()))
    }

    /// Everything that is in the queue.
    fn take(queue: &mut Queue<T>, waited: bool) -> TakenBatch<T> {
        queue.wake_at = None;
        let urgent = mem::take(&mut queue.urgent);
        // The next batch will be about as large: its callers do not pay for growing it.
        let next = Vec::with_capacity(queue.items.len());
        let items = mem::replace(&mut queue.items, next);
        let ticket = mem::replace(&mut queue.ticket, Ticket(Arc::default()));
        TakenBatch { items, urgent, ticket, waited }
    }

    /// Waits until enough urgent items have come or the time is over.
    fn gather<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue<T>>,
        enough: usize,
        wait: Duration,
    ) -> MutexGuard<'a, Queue<T>> {
        let start = now();
        while queue.urgent < enough && !queue.closing {
            let Some(left) = wait.checked_sub(now().duration_since(start)) else {
                break;
            };
            queue.wake_at = Some(enough);
            let waited = self.arrived.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue
    }

    /// Closes the queue and fails what is in it.
    fn fail(&self, error: &Arc<str>) {
        let mut queue = self.queue();
        queue.closing = true;
        queue.items.clear();
        queue.urgent = 0;
        queue.ticket.complete(Err(Arc::clone(error)));
    }
}

/// The writer thread's work, so that a panic anywhere in it is noticed when it is dropped.
pub(crate) struct WriterThread<T, S: Sink<T>> {
    shared: Arc<Shared<T>>,
    sink: S,
    /// The batch that is being written.
    writing: Option<Ticket>,
}

impl<T, S: Sink<T>> WriterThread<T, S> {
    fn run(mut self, mut delay: CommitDelay) {
        let mut last = now();
        while let Some(taken) = self.shared.next_batch(&delay) {
            let (urgent, waited, start) = (taken.urgent, taken.waited, now());
            let Some(end) = self.write(taken) else { return };
            if urgent > 0 {
                let sync = end.duration_since(start);
                delay.observe(urgent, waited, sync, end.duration_since(last));
            }
            last = end;
        }
    }

    /// Writes a batch and completes its ticket. When it was on disk; nothing after an error.
    fn write(&mut self, taken: TakenBatch<T>) -> Option<Instant> {
        let TakenBatch { items: mut batch, ticket, .. } = taken;
        self.writing = Some(ticket.clone());
        match self.sink.commit(&mut batch) {
            Ok(()) => {
                let end = now();
                ticket.complete(Ok(()));
                self.sink.committed(batch);
                Some(end)
            }
            Err(message) => {
                let error: Arc<str> = Arc::from(message);
                self.shared.fail(&error);
                ticket.complete(Err(error));
                None
            }
        }
    }

    /// Writes what is in the queue, without waiting for more. Whether there was anything.
    #[cfg(feature = "simulation")]
    pub(crate) fn write_queued(&mut self) -> bool {
        let taken = {
            let mut queue = self.shared.queue();
            (!queue.items.is_empty()).then(|| Shared::take(&mut queue, false))
        };
        taken.is_some_and(|taken| self.write(taken).is_some())
    }
}

impl<T, S: Sink<T>> Drop for WriterThread<T, S> {
    /// After a panic the callers get an error, and nothing more is taken.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error: Arc<str> = Arc::from(PANICKED);
            self.sink.panicked(&error);
            self.shared.fail(&error);
            if let Some(ticket) = self.writing.take() {
                ticket.complete(Err(error));
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "measures the disk; no rule depends on it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends the sizes of its batches.
    struct Sizes(std::sync::mpsc::Sender<usize>);

    impl Sink<u8> for Sizes {
        fn commit(&mut self, batch: &mut Vec<u8>) -> Result<(), String> {
            self.0.send(batch.len()).map_err(|error| error.to_string())
        }
    }

    fn started() -> (GroupCommit<u8>, std::sync::mpsc::Receiver<usize>) {
        let (sender, sizes) = std::sync::mpsc::channel();
        (GroupCommit::start(Sizes(sender), CommitDelay::adaptive()).unwrap(), sizes)
    }

    #[tokio::test]
    async fn what_rides_along_is_written_also_when_nobody_comes() {
        let (commits, sizes) = started();
        let ticket = commits.enqueue_deferred(1).unwrap();
        assert_eq!(ticket.durable().await, Ok(()));
        assert_eq!(sizes.recv(), Ok(1));
    }

    #[test]
    fn closing_writes_what_rides_along() {
        let (commits, sizes) = started();
        for item in 0..10 {
            commits.enqueue_deferred(item).unwrap();
        }
        commits.close();
        assert_eq!(sizes.iter().sum::<usize>(), 10);
        assert_eq!(commits.enqueue_deferred(1).map(|_| ()), Err(Closed));
    }

    /// Breaks at its second batch.
    struct Breaks {
        batches: u32,
        stopped: std::sync::mpsc::Sender<String>,
    }

    impl Sink<u8> for Breaks {
        fn commit(&mut self, _: &mut Vec<u8>) -> Result<(), String> {
            self.batches += 1;
            assert!(self.batches < 2, "the disk is upside down");
            Ok(())
        }

        fn panicked(&mut self, why: &str) {
            self.stopped.send(why.into()).unwrap();
        }
    }

    #[tokio::test]
    async fn a_writer_that_panics_tells_its_callers_at_once_and_takes_no_more() {
        let (stopped, why) = std::sync::mpsc::channel();
        let commits =
            GroupCommit::start(Breaks { batches: 0, stopped }, CommitDelay::none()).unwrap();
        assert_eq!(commits.enqueue(1).unwrap().durable().await, Ok(()));
        let ticket = commits.enqueue(2).unwrap();
        let told = tokio::time::timeout(Duration::from_secs(10), ticket.durable()).await;
        let told = told.expect("its callers wait for ever").unwrap_err();
        assert!(told.contains("panicked"), "{told}");
        assert!(why.recv().unwrap().contains("panicked"));
        assert_eq!(commits.enqueue(3).map(|_| ()), Err(Closed));
        assert_eq!(commits.enqueue_deferred(3).map(|_| ()), Err(Closed));
    }
}
