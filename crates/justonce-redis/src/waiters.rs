//! Those in this process who wait for a claim to end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justonce_core::{Fence, RecordId};
use tokio::sync::oneshot;

/// Everybody who waits, by claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    waiting: HashMap<(RecordId, Fence), HashMap<u64, oneshot::Sender<()>>>,
}

/// A place among those who wait. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Place {
    waiters: Waiters,
    claim: (RecordId, Fence),
    number: u64,
    woken: oneshot::Receiver<()>,
}

impl Waiters {
    /// Takes a place. From now on no wake-up is missed.
    pub(crate) fn enter(&self, id: RecordId, fence: Fence) -> Place {
        let (wake, woken) = oneshot::channel();
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.waiting.entry((id, fence)).or_default().insert(number, wake);
        Place { waiters: self.clone(), claim: (id, fence), number, woken }
    }

    /// Wakes those who wait for one claim: their senders go.
    pub(crate) fn wake(&self, id: RecordId, fence: Fence) {
        self.table().waiting.remove(&(id, fence));
    }

    /// Wakes everybody: they look again.
    pub(crate) fn wake_all(&self) {
        self.table().waiting.clear();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits for the wake-up.
    pub(crate) async fn woken(mut self) {
        // The sender never says anything; it goes when it is time.
        let _ = (&mut self.woken).await;
    }
}

impl Drop for Place {
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
    async fn a_wake_up_before_the_wait_counts_and_places_are_given_up() {
        let waiters = Waiters::default();
        let id = RecordId::from_bytes([1; 32]);
        let (first, second) = (waiters.enter(id, Fence::new(1)), waiters.enter(id, Fence::new(2)));
        waiters.wake(id, Fence::new(1));
        first.woken().await;
        assert_eq!(waiters.table().waiting.len(), 1);
        drop(second);
        assert!(waiters.table().waiting.is_empty());
        let third = waiters.enter(id, Fence::new(3));
        waiters.wake_all();
        third.woken().await;
    }
}
