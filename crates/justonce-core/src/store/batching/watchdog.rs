//! The watchdog: sends another command when one in flight takes too long, and delivers late
//! replies.

use std::mem::{replace, take};
use std::sync::{Arc, Weak};

use tokio::time::sleep;

use super::notify::Notification;
use super::queue::{BatchExecutor, RuntimeQueue};

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
