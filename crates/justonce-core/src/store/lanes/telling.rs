//! Telling many callers at once.

use std::mem::take;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::task::yield_now;

use super::{Carrier, Lanes, Told};

impl<C: Carrier> Lanes<C> {
    /// Tells callers, all in one go, and a moment later.
    ///
    /// A worker of the runtime that wakes up one task after the other wakes up a sleeping worker
    /// with the second one. That one takes what is there, which is one task, and sleeps again until
    /// the next one comes: for each task two threads change places. So they are woken up where the
    /// runtime wakes up whoever has let others go first: it calls for help when it is through with
    /// all of them.
    ///
    /// That is about speed. If the worker is kept from it, by a handler that blocks it, the watch
    /// tells them; and if it ends, what it was to wake up tells them when it is dropped.
    pub(super) fn tell(&self, told: Told<C::Answer>) {
        if told.len() < 2 {
            return tell_each(told);
        }
        let telling = Arc::new(Telling(Mutex::new(told)));
        self.queue().telling.push(Arc::downgrade(&telling));
        let waker = Waker::from(telling);
        // Its first poll hands the waker to the runtime. What it gives does not matter: nobody
        // waits for it.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    }
}

fn tell_each<A>(told: Told<A>) {
    told.into_iter().for_each(|(caller, answer)| caller.tell(answer));
}

/// Callers who are told when somebody wakes this up.
pub(super) struct Telling<A>(Mutex<Told<A>>);

impl<A> Telling<A> {
    /// Tells those who were not told yet.
    pub(super) fn tell(&self) {
        tell_each(take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)));
    }
}

impl<A: Send + 'static> Wake for Telling<A> {
    fn wake(self: Arc<Self>) {
        self.tell();
    }
}

impl<A> Drop for Telling<A> {
    fn drop(&mut self) {
        self.tell();
    }
}
