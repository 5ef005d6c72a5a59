//! Callers in this process that wait for the end of an operation.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justonce_core::RecordId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The waiting callers, by record.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<RecordId, Waited>>);

/// A record with waiters.
#[derive(Default)]
struct Waited {
    count: usize,
    notify: Arc<Notify>,
}

/// A registered caller. Dropping it removes the registration.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    notify: Arc<Notify>,
}

impl Waiters {
    /// Registers a caller.
    pub(crate) fn register(&self, id: &RecordId) -> Waiter<'_> {
        let mut table = self.table();
        let waited = table.entry(*id).or_default();
        waited.count += 1;
        Waiter { waiters: self, id: *id, notify: Arc::clone(&waited.notify) }
    }

    /// Wakes the waiters of one record.
    pub(crate) fn wake(&self, id: &RecordId) {
        if let Some(waited) = self.table().get(id) {
            waited.notify.notify_waiters();
        }
    }

    /// Wakes all: they check their records again.
    pub(crate) fn wake_all(&self) {
        for waited in self.table().values() {
            waited.notify.notify_waiters();
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<RecordId, Waited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut table = self.waiters.table();
        if let Entry::Occupied(mut waited) = table.entry(self.id) {
            waited.get_mut().count -= 1;
            if waited.get().count == 0 {
                waited.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_that_leave_at_once_leave_nothing_behind() {
        let waiters = Waiters::default();
        let id = RecordId::from_bytes([7; 32]);
        let (first, second) = (waiters.register(&id), waiters.register(&id));
        // Two threads leave at once: the first has dropped its registration, and drops its share of
        // the signal only after the second is gone.
        let lingers = Arc::clone(&first.notify);
        drop(first);
        drop(second);
        drop(lingers);
        assert_eq!(waiters.table().len(), 0, "nothing is left");
    }
}
