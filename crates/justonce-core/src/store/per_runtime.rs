//! What each tokio runtime has of its own.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

/// A value for each tokio runtime that uses it, dropped when that runtime ends.
///
/// What a runtime serves (a connection, a task) stands still while the runtime is blocked, and is
/// gone when it ends. A store that is used from several runtimes keeps such things apart, so that
/// none of them depends on another: the engine renews leases on a runtime of its own.
///
/// ```
/// use justonce_core::store::PerRuntime;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use tokio::runtime::Builder;
///
/// let counters = PerRuntime::new();
/// let count = || counters.get(AtomicU32::default).fetch_add(1, Ordering::Relaxed);
/// let runtimes = [(); 2].map(|()| Builder::new_current_thread().build().unwrap());
/// assert_eq!(runtimes[0].block_on(async { (count(), count()) }), (0, 1));
/// assert_eq!(runtimes[1].block_on(async { count() }), 0);
/// drop(runtimes);
/// assert!(counters.all().is_empty());
/// ```
pub struct PerRuntime<T>(Arc<Mutex<Vec<Entry<T>>>>);

struct Entry<T> {
    /// `None` outside of runtimes.
    runtime: Option<runtime::Id>,
    value: Arc<T>,
    /// Dropping it ends the task that notices the end of the runtime.
    _dropped: oneshot::Sender<()>,
}

impl<T: Send + Sync + 'static> PerRuntime<T> {
    /// No values yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// The value of the current runtime, made now if there is none.
    pub fn get(&self, make: impl FnOnce() -> T) -> Arc<T> {
        match self.try_get(|| Ok::<_, Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// The value of the current runtime, made now if there is none.
    ///
    /// # Errors
    ///
    /// What `make` returns.
    pub fn try_get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let handle = Handle::try_current().ok();
        let runtime = handle.as_ref().map(Handle::id);
        let mut entries = lock(&self.0);
        if let Some(entry) = entries.iter().find(|entry| entry.runtime == runtime) {
            return Ok(Arc::clone(&entry.value));
        }
        let value = Arc::new(make()?);
        let (_dropped, dropped) = oneshot::channel();
        entries.push(Entry { runtime, value: Arc::clone(&value), _dropped });
        drop(entries);
        if let Some(handle) = handle {
            let ended = RemoveOnDrop { entries: Arc::downgrade(&self.0), runtime };
            handle.spawn(async move {
                let _ended = ended;
                let _ = dropped.await;
            });
        }
        Ok(value)
    }

    /// The values of all runtimes.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        lock(&self.0).iter().map(|entry| Arc::clone(&entry.value)).collect()
    }
}

impl<T: Send + Sync + 'static> Default for PerRuntime<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerRuntime<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerRuntime").field("runtimes", &lock(&self.0).len()).finish()
    }
}

/// Held by a task of the runtime, which drops it when it ends.
struct RemoveOnDrop<T> {
    entries: Weak<Mutex<Vec<Entry<T>>>>,
    runtime: Option<runtime::Id>,
}

impl<T> Drop for RemoveOnDrop<T> {
    fn drop(&mut self) {
        let Some(entries) = self.entries.upgrade() else { return };
        let mut entries = lock(&entries);
        let at = entries.iter().position(|entry| entry.runtime == self.runtime);
        let removed = at.map(|at| entries.swap_remove(at));
        // Whatever dropping the value does, it does without the lock.
        drop(entries);
        drop(removed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn a_value_goes_with_its_runtime() {
        let values = PerRuntime::new();
        let (one, other) = (runtime(), runtime());
        let first = one.block_on(async { values.get(|| 1) });
        assert_eq!(*one.block_on(async { values.get(|| 2) }), 1);
        assert_eq!(*other.block_on(async { values.get(|| 3) }), 3);
        let weak = Arc::downgrade(&first);
        drop(first);
        drop(one);
        assert!(weak.upgrade().is_none(), "the runtime has ended");
        assert_eq!(values.all().iter().map(|value| **value).collect::<Vec<_>>(), [3]);
        other.shutdown_background();
        assert!(values.all().is_empty());
    }

    #[test]
    fn no_task_is_left_behind() {
        let runtime = runtime();
        let values = PerRuntime::new();
        runtime.block_on(async { values.get(|| ()) });
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        drop(values);
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    }

    #[test]
    fn there_may_be_no_runtime_and_nothing_may_be_made() {
        let values = PerRuntime::new();
        assert_eq!(values.try_get(|| Err("no")), Err("no"));
        assert_eq!(*values.get(|| 1), 1);
        assert_eq!(*values.get(|| 2), 1);
    }
}
