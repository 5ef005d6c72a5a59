//! Delivering the replies of a batch with one wake-up of the runtime.

use std::mem::take;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::task::yield_now;

use super::queue::{BatchExecutor, Replies, RuntimeQueue};

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
pub(super) struct Notification<R>(Mutex<Replies<R>>);

impl<R> Notification<R> {
    /// Delivers what was not delivered yet.
    pub(super) fn deliver(&self) {
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
