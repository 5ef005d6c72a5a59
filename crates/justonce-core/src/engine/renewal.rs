//! Keeps the leases of held claims alive, from one background task per engine.
//!
//! The task runs on no runtime of a caller's, so a handler that blocks its thread does not stop
//! its own renewals, nor those of others.
//!
//! A renewal that is not answered is repeated beside the one that is under way: a store call may
//! hang for ever, and a slow one may still be answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, RwLock};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::background::bounded;
use super::builder::Inner;
use super::held_claim::{Settlement, settled_by};
use super::not_stored::NotStoredWhy;
use super::orphaned_begins::OrphanedBegins;
use crate::claim::{Checkpoint, Fence};
use crate::error::StoreResult;
use crate::operation::Operation;
use crate::policy::OnLapsed;
use crate::protocol::{Abandonment, Action, Answer, Claimed, Lost, Step, Why};
use crate::record_id::RecordId;

/// Leases are renewed when this part of them has passed.
const RENEW_AFTER: u32 = 3;
/// A renewal that failed is tried again after this part of the pause between renewals.
const RETRY_AFTER: u32 = 5;
/// A renewal that is not answered is tried again after this part of the pause between renewals: a
/// sixth of the lease, so that three can hang before it is over.
const REPEAT_AFTER: u32 = 2;
/// How often it is tried beside the same call before that is given up: half of the lease after its
/// start. What it could still bring then, later calls have brought.
const MOST_BESIDE: u32 = 3;

/// So long is waited for a renewal that is under way when its claim is given up, at most.
const LAST_RENEWAL_LIMIT: Duration = Duration::from_secs(5);

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
    /// Read by each renewal for as long as it is under way.
    under_way: RwLock<()>,
    /// Whether there is no takeover when it is given up.
    is_held: bool,
    /// How many checkpoints were saved under this claim.
    saved: AtomicU32,
    /// The begin, if a try of it was not answered.
    doubt: Mutex<Option<Step>>,
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

impl Active {
    /// Starts the renewals of a claim. Its lease may be as old as the question that it answers; and
    /// if the answer is to a repetition, what is left of it says nothing about later renewals.
    pub(super) fn start(
        inner: &Arc<Inner>,
        operation: &Operation,
        claimed: &Claimed,
        asked_at: Instant,
        doubt: Option<Step>,
    ) -> Arc<Self> {
        let active = Arc::new(Self {
            id: operation.id(),
            fence: claimed.fence,
            pause: operation.policy().lease() / RENEW_AFTER,
            due: Mutex::new(None),
            number: inner.renewals.numbers.fetch_add(1, Ordering::Relaxed),
            lost: AtomicBool::new(false),
            lost_signal: Notify::new(),
            under_way: RwLock::new(()),
            is_held: operation.policy().on_lapsed() == OnLapsed::Hold,
            saved: AtomicU32::new(0),
            doubt: Mutex::new(doubt),
            cause: Mutex::new(None),
        });
        inner.renewals.insert(inner, &active, asked_at + claimed.lease / RENEW_AFTER);
        active
    }

    /// The claim has ended: nothing renews it any more. If a try of its begin was not answered, it
    /// may be carried out from now on, and take a claim without a holder.
    pub(super) fn end(&self, inner: &Arc<Inner>) {
        inner.renewals.remove(self);
        let doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(begin) = doubt {
            OrphanedBegins::look_for(inner, begin, self.fence);
        }
    }

    /// A claim that is given up is renewed no more, and a renewal that is under way must not come
    /// after that: it would give a lease without a holder.
    pub(super) async fn before(&self, inner: &Inner, step: &Step) {
        // One that is held as unknown refuses renewals by itself.
        if matches!(step.action, Action::Abandon(..)) && !self.is_held {
            inner.renewals.remove(self);
            let limit = LAST_RENEWAL_LIMIT.min(self.pause / REPEAT_AFTER);
            // One that is slower than this is as late as one whose connection stood still.
            let _ = tokio::time::timeout(limit, self.under_way.write()).await;
        }
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

    /// The last cause that the handler gave.
    pub(super) fn cause(&self) -> Option<Why> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a cause, in case the handler ends without knowing whether it took effect.
    pub(super) fn saw(&self, cause: Why) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
    }

    /// Adds what the handler saw to an abandon that says nothing about it.
    pub(super) fn explain(&self, action: &mut Action) {
        if let Action::Abandon(_, Abandonment { cause: cause @ None, .. }) = action {
            *cause = self.cause();
        }
    }

    /// A checkpoint as the next one of this claim.
    pub(super) fn numbered(&self, checkpoint: Checkpoint) -> Checkpoint {
        let number = self.saved.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        checkpoint.numbered(number)
    }

    /// Saves a checkpoint under this claim. If this is dropped on its way, it is saved in the
    /// background: what the handler knew is not lost with it.
    pub(super) async fn save(
        &self,
        inner: &Arc<Inner>,
        checkpoint: Checkpoint,
    ) -> StoreResult<Settlement> {
        let action = Action::Checkpoint(self.fence, checkpoint);
        let mut unsaved = Unsaved { inner, step: Some(Step::new(self.id, action)) };
        let Some(step) = &unsaved.step else { return Ok(Settlement::Lost(Lost::Gone)) };
        let saved = settled_by(inner, step).await;
        unsaved.step = None;
        saved
    }

    fn due(&self) -> MutexGuard<'_, Option<Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Renewals {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the first renewal of a claim, and starts the task if there is none.
    fn insert(&self, inner: &Arc<Inner>, active: &Arc<Active>, at: Instant) {
        let mut queue = self.queue();
        *active.due() = Some(at);
        queue.due.insert((at, active.number), Arc::clone(active));
        let works = queue.task.as_ref().is_some_and(|task| !task.is_finished());
        if works {
            self.wake_before(&mut queue, at);
        } else {
            queue.looks_at = Some(at);
            let task = renew_all(Arc::downgrade(inner), Arc::clone(&inner.renewals));
            // Where it cannot run nothing is renewed; the claim then ends with its first lease.
            queue.task = inner.background.spawn(task);
        }
    }

    /// Moves the next renewal of a claim, unless it was taken out meanwhile. What is there already
    /// stays if `keep` says so.
    fn reschedule(&self, active: &Arc<Active>, at: Instant, keep: impl FnOnce(Instant) -> bool) {
        let mut queue = self.queue();
        {
            let mut due = active.due();
            let Some(before) = *due else { return };
            if keep(before) {
                return;
            }
            queue.due.remove(&(before, active.number));
            *due = Some(at);
        }
        queue.due.insert((at, active.number), Arc::clone(active));
        self.wake_before(&mut queue, at);
    }

    /// Wakes the task if it would look too late.
    fn wake_before(&self, queue: &mut Queue, at: Instant) {
        if queue.looks_at.is_none_or(|looks| at < looks) {
            queue.looks_at = Some(at);
            self.changed.notify_one();
        }
    }

    /// Takes a claim out of the queue: nothing renews it any more.
    pub(super) fn remove(&self, active: &Active) {
        let mut queue = self.queue();
        if let Some(at) = active.due().take() {
            queue.due.remove(&(at, active.number));
        }
    }

    /// The claims that are due now, and when the next one will be. Each is due again when its
    /// renewal has not been answered for a while.
    fn take_due(&self) -> (Vec<Arc<Active>>, Option<Instant>) {
        let mut queue = self.queue();
        let now = Instant::now();
        let mut due = Vec::new();
        while let Some(first) = queue.due.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        for active in &due {
            let again = now + active.pause / REPEAT_AFTER;
            *active.due() = Some(again);
            queue.due.insert((again, active.number), Arc::clone(active));
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
                biased;
                () = tokio::time::sleep_until(at) => {}
                () = renewals.changed.notified() => {}
            },
            None => renewals.changed.notified().await,
        }
    }
}

/// One renewal. Others of the same claim may be under way.
async fn renew(inner: Arc<Inner>, active: Arc<Active>) {
    let Ok(_under_way) = active.under_way.try_read() else { return };
    let start = Instant::now();
    let step = Step::new(active.id, Action::Renew(active.fence));
    let limit = active.pause / REPEAT_AFTER * MOST_BESIDE;
    let Ok(answer) = tokio::time::timeout(limit, inner.store.apply(&step)).await else { return };
    let renewals = &inner.renewals;
    match answer {
        Ok(Answer::Renewed(_)) => {
            // The lease lasts from the moment at which it was renewed: not before the start.
            let soonest = Instant::now() + active.pause / RETRY_AFTER;
            let at = (start + active.pause).max(soonest);
            renewals.reschedule(&active, at, |before| before >= at);
        }
        // At the cap and once held as unknown, there is no other owner: the handler may finish.
        Ok(Answer::Capped | Answer::Lost(Lost::Held)) => renewals.remove(&active),
        Ok(Answer::Lost(_)) => {
            renewals.remove(&active);
            active.lose();
        }
        Ok(_) | Err(_) => {
            let at = Instant::now() + active.pause / RETRY_AFTER;
            renewals.reschedule(&active, at, |before| before <= at);
        }
    }
}

/// A checkpoint on its way.
struct Unsaved<'a> {
    inner: &'a Arc<Inner>,
    step: Option<Step>,
}

impl Drop for Unsaved<'_> {
    fn drop(&mut self) {
        if let Some(step) = self.step.take() {
            let inner = Arc::clone(self.inner);
            self.inner.background.finish(async move {
                // One try: a takeover without it repeats what it stands for.
                if let Err(error) = bounded(inner.store.apply(&step)).await {
                    inner.not_stored(&step, NotStoredWhy::Failed(&error));
                }
            });
        }
    }
}
