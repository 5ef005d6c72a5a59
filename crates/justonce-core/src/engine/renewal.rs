//! Keeps the leases of held claims alive, from one background task per engine.
//!
//! The task is not part of the handler's future, so a handler that blocks its thread does not
//! stop its own renewals (on a runtime with more than one thread).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::begin::unexpected;
use super::builder::Inner;
use super::held::Settlement;
use crate::claim::{Checkpoint, Fence};
use crate::error::StoreResult;
use crate::record::RecordId;
use crate::step::{Abandonment, Action, Answer, Claimed, Lost, Step};
use crate::timeline::Why;

/// Leases are renewed when this part of them has passed.
const RENEW_AFTER: u32 = 3;
/// A renewal that failed is tried again after this part of the pause between renewals.
const RETRY_AFTER: u32 = 5;

/// A claim whose lease is being renewed.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    pause: Duration,
    /// When the next renewal is due; with the number it is the place in the queue.
    due: Mutex<Option<Instant>>,
    number: u64,
    lost: AtomicBool,
    lost_signal: Notify,
    /// How many recovery points were saved under this claim.
    saved: AtomicU32,
    /// What the handler saw, in case it does not know what it did.
    cause: Mutex<Option<Why>>,
}

/// The renewals that are due, in their order.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    queue: Mutex<Queue>,
    numbers: AtomicU64,
    changed: Notify,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    due: BTreeMap<(Instant, u64), Arc<Active>>,
    task: Option<JoinHandle<()>>,
    /// When the task looks again by itself; nothing while it waits to be told.
    looks_at: Option<Instant>,
}

/// Whether a claim is queued for the first time, or again unless it was taken out meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Next,
}

impl Active {
    /// Starts the renewals of a claim.
    pub(super) fn start(inner: &Arc<Inner>, id: RecordId, claimed: &Claimed) -> Arc<Self> {
        let active = Arc::new(Self {
            id,
            fence: claimed.fence,
            pause: claimed.lease / RENEW_AFTER,
            due: Mutex::new(None),
            number: inner.renewals.numbers.fetch_add(1, Ordering::Relaxed),
            lost: AtomicBool::new(false),
            lost_signal: Notify::new(),
            saved: AtomicU32::new(0),
            cause: Mutex::new(None),
        });
        inner.renewals.insert(inner, &active, active.pause, Turn::First);
        active
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Waits until another owner has taken over.
    pub(super) async fn lost(&self) {
        loop {
            let signal = self.lost_signal.notified();
            if self.is_lost() {
                return;
            }
            signal.await;
        }
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.lost_signal.notify_waiters();
    }

    /// Remembers what the handler saw, for the case that it does not know what it did.
    pub(super) fn saw(&self, cause: Why) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
    }

    /// Adds what the handler saw to an abandon that says nothing about it.
    pub(super) fn explain(&self, action: &mut Action) {
        if let Action::Abandon(_, Abandonment { cause: cause @ None, .. }) = action {
            *cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
    }

    /// A recovery point as the next one of this claim.
    pub(super) fn numbered(&self, checkpoint: Checkpoint) -> Checkpoint {
        let number = self.saved.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        checkpoint.numbered(number)
    }

    /// Saves a recovery point under this claim.
    pub(super) async fn save(
        &self,
        inner: &Inner,
        checkpoint: Checkpoint,
    ) -> StoreResult<Settlement> {
        let action = Action::Checkpoint(self.fence, checkpoint);
        let step = Step::new(self.id, action);
        match inner.store.apply(&step).await? {
            Answer::Applied => Ok(Settlement::Stored),
            Answer::Lost(lost) => Ok(Settlement::Lost(lost)),
            other => Err(unexpected(&step.action, &other)),
        }
    }

    fn due(&self) -> MutexGuard<'_, Option<Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Renewals {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the next renewal of a claim, and starts the task if there is none.
    fn insert(&self, inner: &Arc<Inner>, active: &Arc<Active>, pause: Duration, turn: Turn) {
        let at = Instant::now() + pause;
        let mut queue = self.queue();
        {
            let mut due = active.due();
            if turn == Turn::Next && due.is_none() {
                return;
            }
            *due = Some(at);
        }
        queue.due.insert((at, active.number), Arc::clone(active));
        let works = queue.task.as_ref().is_some_and(|task| !task.is_finished());
        if works && queue.looks_at.is_some_and(|looks| looks <= at) {
            return;
        }
        queue.looks_at = Some(at);
        // Without a runtime nothing is renewed; the claim then ends with its first lease.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if works {
            self.changed.notify_one();
        } else {
            let task = renew_all(Arc::downgrade(inner), Arc::clone(&inner.renewals));
            queue.task = Some(runtime.spawn(task));
        }
        if turn == Turn::First {
            // The task just woken is next on this very thread, where no other can fetch it, and
            // the handler may be about to block the thread. A second task takes that place, and
            // the first moves to where idle threads find it.
            runtime.spawn(async {});
        }
    }

    /// Takes a claim out of the queue: nothing renews it any more.
    pub(super) fn remove(&self, active: &Active) {
        let mut queue = self.queue();
        if let Some(at) = active.due().take() {
            queue.due.remove(&(at, active.number));
        }
    }

    /// The claims that are due now, and when the next one will be.
    fn take_due(&self) -> (Vec<Arc<Active>>, Option<Instant>) {
        let mut queue = self.queue();
        let now = Instant::now();
        let mut due = Vec::new();
        while let Some(first) = queue.due.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        queue.looks_at = queue.due.first_key_value().map(|((at, _), _)| *at);
        (due, queue.looks_at)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

/// The background task. It holds the engine only while it works, and ends with it.
async fn renew_all(engine: Weak<Inner>, renewals: Arc<Renewals>) {
    while !renewals.stopped.load(Ordering::Acquire) {
        let (due, next) = renewals.take_due();
        for active in due {
            let Some(inner) = engine.upgrade() else {
                return;
            };
            // One task each: a slow store must not make the others late.
            tokio::spawn(renew(inner, active));
        }
        match next {
            Some(at) => tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = renewals.changed.notified() => {}
            },
            None => renewals.changed.notified().await,
        }
    }
}

async fn renew(inner: Arc<Inner>, active: Arc<Active>) {
    let step = Step::new(active.id, Action::Renew(active.fence));
    match inner.store.apply(&step).await {
        Ok(Answer::Renewed(_)) => {
            inner.renewals.insert(&inner, &active, active.pause, Turn::Next);
        }
        // At the cap and once held as unknown, nobody else runs it: the handler may finish.
        Ok(Answer::Capped | Answer::Lost(Lost::Held)) => {}
        Ok(Answer::Lost(_)) => active.lose(),
        Ok(_) | Err(_) => {
            let pause = active.pause / RETRY_AFTER;
            inner.renewals.insert(&inner, &active, pause, Turn::Next);
        }
    }
}
