//! Callers in this process that wait for the end of a claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use justonce_core::{Fence, RecordId};
use tokio::sync::oneshot;

use crate::lock::lock;

/// The waiting callers, by claim.
#[derive(Clone, Default)]
pub(crate) struct Waiters(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    waiting: HashMap<(RecordId, Fence), HashMap<u64, oneshot::Sender<()>>>,
}

/// A registered caller. Dropping it removes the registration.
pub(crate) struct Waiter {
    waiters: Waiters,
    claim: (RecordId, Fence),
    number: u64,
    woken: oneshot::Receiver<()>,
}

impl Waiters {
    /// Registers a caller. From now on no wake-up is missed.
    pub(crate) fn register(&self, id: RecordId, fence: Fence) -> Waiter {
        let (wake, woken) = oneshot::channel();
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.waiting.entry((id, fence)).or_default().insert(number, wake);
        Waiter { waiters: self.clone(), claim: (id, fence), number, woken }
    }

    /// Wakes the waiters of one claim by dropping their senders.
    pub(crate) fn wake(&self, id: RecordId, fence: Fence) {
        self.table().waiting.remove(&(id, fence));
    }

    /// Wakes all: they check their claims again.
    pub(crate) fn wake_all(&self) {
        self.table().waiting.clear();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }
}

impl Waiter {
    /// Waits for the wake-up.
    pub(crate) async fn woken(mut self) {
        // The sender is dropped without sending.
        let _ = (&mut self.woken).await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut table = self.waiters.table();
        if let Some(waiting) = table.waiting.get_mut(&self.claim) {
            waiting.remove(&self.number);
            if waiting.is_empty() {
                table.waiting.remove(&self.claim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wake_up_before_the_wait_counts_and_waiters_are_removed() {
        let waiters = Waiters::default();
        let id = RecordId::from_bytes([1; 32]);
        let (first, second) =
            (waiters.register(id, Fence::new(1)), waiters.register(id, Fence::new(2)));
        waiters.wake(id, Fence::new(1));
        first.woken().await;
        assert_eq!(waiters.table().waiting.len(), 1);
        drop(second);
        assert!(waiters.table().waiting.is_empty());
        let third = waiters.register(id, Fence::new(3));
        waiters.wake_all();
        third.woken().await;
    }
}
