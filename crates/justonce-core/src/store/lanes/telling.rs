//! Telling many callers at once.

use std::mem::take;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::task::yield_now;

use super::Caller;
use crate::error::StoreResult;

type Told<A> = Vec<(Caller<A>, StoreResult<A>)>;

/// Tells callers, all in one go, and a moment later.
///
/// A worker of the runtime that wakes up one task after the other wakes up a sleeping worker with
/// the second one. That one takes what is there, which is one task, and sleeps again until the next
/// one comes: for each task two threads change places. So they are woken up where the runtime wakes
/// up whoever has let others go first: it calls for help when it is through with all of them.
///
/// That is about speed. The runtime may wake them up at any time, and if it is dropped, so is
/// what it was to wake up, which tells them too.
pub fn tell_together<A: Send + 'static>(told: Told<A>) {
    if told.len() < 2 {
        return tell(told);
    }
    let waker = Waker::from(Arc::new(Telling(Mutex::new(told))));
    // Its first poll hands the waker to the runtime. What it gives does not matter: nobody waits
    // for it.
    let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
}

fn tell<A>(told: Told<A>) {
    told.into_iter().for_each(|(caller, answer)| caller.tell(answer));
}

struct Telling<A: Send + 'static>(Mutex<Told<A>>);

impl<A: Send + 'static> Wake for Telling<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        tell(take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)));
    }
}

impl<A: Send + 'static> Drop for Telling<A> {
    fn drop(&mut self) {
        tell(take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)));
    }
}
