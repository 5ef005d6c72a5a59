//! Where the engine does what no caller waits for: renewals, and the rest of what callers left.
//!
//! It is a thread of the engine's own with a small runtime, so that no runtime of a caller's is
//! needed once a claim is taken: one that ends or blocks must not let the claims of others lapse,
//! nor lose a handler's result.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::error::{StoreError, StoreErrorKind, StoreResult};

/// The name of the thread, for those who look at the process.
const THREAD_NAME: &str = "justonce-engine";
/// How long one store call may take in the background, where no caller waits who could give it up:
/// longer than stores take that answer at all.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// A store call that ends, also if the store does not.
pub(super) async fn bounded<T>(call: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(|_| {
        let message = format!("the store did not answer within {CALL_LIMIT:?}");
        Err(StoreError::maybe_applied(StoreErrorKind::TimedOut, message))
    })
}

/// More tasks than there are ever.
const MOST_TASKS: u32 = u32::MAX >> 4;

/// Where background work runs.
#[derive(Debug)]
pub(super) struct Background {
    host: Mutex<Host>,
    /// Each task that must not be cut short has one.
    unfinished: Arc<Semaphore>,
}

#[derive(Debug)]
enum Host {
    /// On a runtime that was given to the engine.
    Given(Handle),
    /// On a thread that is started when there is something to do.
    NotYet,
    /// On that thread.
    Own { runtime: Handle, stop: Arc<Notify> },
}

impl Background {
    /// On the given runtime, or on a thread of its own.
    pub(super) fn new(given: Option<Handle>) -> Self {
        Self {
            host: Mutex::new(given.map_or(Host::NotYet, Host::Given)),
            unfinished: Arc::new(Semaphore::new(MOST_TASKS as usize)),
        }
    }

    /// Starts a task. If there is nowhere to run it, it is dropped: what it would have done is
    /// left to the lease.
    pub(super) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        Some(self.runtime()?.spawn(task))
    }

    /// Starts a task that [`finished`](Self::finished) waits for.
    pub(super) fn finish(&self, task: impl Future<Output = ()> + Send + 'static) {
        let unfinished = Arc::clone(&self.unfinished).try_acquire_owned();
        self.spawn(async move {
            task.await;
            drop(unfinished);
        });
    }

    /// Waits until every task is finished that must be.
    pub(super) async fn finished(&self) {
        // The semaphore is never closed.
        let _ = self.unfinished.acquire_many(MOST_TASKS).await;
    }

    /// Ends the thread, if there is one. Everything that works there keeps the engine alive, so
    /// nothing does any more.
    pub(super) fn stop(&self) {
        if let Host::Own { stop, .. } = &*self.host() {
            stop.notify_one();
        }
    }

    fn runtime(&self) -> Option<Handle> {
        let mut host = self.host();
        if let Host::NotYet = *host {
            match start() {
                Ok(own) => *host = own,
                // The machine has no thread left: better on the caller's runtime than not at all.
                Err(_) => return Handle::try_current().ok(),
            }
        }
        match &*host {
            Host::Given(runtime) | Host::Own { runtime, .. } => Some(runtime.clone()),
            Host::NotYet => None,
        }
    }

    fn host(&self) -> MutexGuard<'_, Host> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start() -> io::Result<Host> {
    // Stores may open connections from here, so everything is enabled.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
        runtime.block_on(stopped.notified());
        // A store's blocking call may hang; it is not waited for.
        runtime.shutdown_background();
    })?;
    Ok(Host::Own { runtime: handle, stop })
}
