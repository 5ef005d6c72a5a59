//! Begins whose reply was lost: whether they took a claim is not known.
//!
//! Nothing was executed under such a claim, so it must not become unknown, nor keep others waiting.
//! The begin is repeated until the store answers, and what it claimed is released.
//!
//! A store that takes steps by several connections may still carry the first one out after that:
//! it is looked for again, twice, before such a claim could lapse. The same is done for begins that
//! were answered at a later try: the first one may be carried out when the claim has ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::background::bounded;
use super::builder::Inner;
use crate::claim::Fence;
use crate::error::StoreResult;
use crate::protocol::{Action, Answer, Entry, State, Step};

/// The pause after a try that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How many are remembered. What is beyond is left to its lease.
const MOST: usize = 10_000;
/// When it is looked again whether a begin was carried out after it was given back: soon, since
/// others wait for it, and then after half of its lease.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How many are tried at once while the store answers. While it does not, one is enough to see
/// whether it is back.
const AT_ONCE: usize = 32;

/// The begins that are still to be given back, and the one task that does it.
#[derive(Debug)]
pub(super) struct OrphanedBegins {
    queue: Mutex<Queue>,
    /// The task is over.
    over: Notify,
    /// How many more may be looked for at once.
    looks: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Queue {
    begins: VecDeque<LostBegin>,
    task: Option<JoinHandle<()>>,
    /// When the last of them has been tried for long enough.
    until: Option<Instant>,
}

impl Default for OrphanedBegins {
    fn default() -> Self {
        let looks = Arc::new(Semaphore::new(MOST));
        Self { queue: Mutex::default(), over: Notify::new(), looks }
    }
}

#[derive(Debug)]
struct LostBegin {
    step: Step,
    /// The claim that its caller had, if it had one: something may have been executed under it.
    held: Fence,
    /// Until when it is tried even if the engine is not used any more.
    until: Instant,
}

impl OrphanedBegins {
    /// Gives a claim back that a begin may have taken, or will yet take: a store that stood still
    /// may carry it out when it goes on, however late.
    pub(super) fn give_back(inner: &Arc<Inner>, step: Step) {
        Self::give_back_but(inner, step, Fence::NONE);
    }

    /// Looks in a while whether a begin was carried out again after all, under another fence than
    /// that of the claim that its caller held.
    pub(super) fn look_for(inner: &Arc<Inner>, step: Step, held: Fence) {
        // One too many is left to its lease.
        if let Ok(place) = Arc::clone(&inner.lost_begins.looks).try_acquire_owned() {
            let engine = Arc::downgrade(inner);
            inner.background.spawn(async move {
                look_again(engine, step, held).await;
                drop(place);
            });
        }
    }

    /// Waits until all are given back, or were tried for as long as their leases.
    pub(super) async fn given_back(&self) {
        let over = self.over.notified();
        let until = {
            let queue = self.queue();
            queue.until.filter(|_| queue.task.as_ref().is_some_and(|task| !task.is_finished()))
        };
        if let Some(until) = until {
            // What could not be given back by then is left to its lease.
            let _ = tokio::time::timeout_at(until, over).await;
        }
    }

    fn give_back_but(inner: &Arc<Inner>, step: Step, held: Fence) {
        let Action::Begin(begin) = &step.action else { return };
        let until = Instant::now() + begin.policy.lease();
        let mut queue = inner.lost_begins.queue();
        if queue.begins.len() >= MOST {
            return;
        }
        queue.begins.push_back(LostBegin { step, held, until });
        queue.until = queue.until.max(Some(until));
        if queue.task.as_ref().is_none_or(JoinHandle::is_finished) {
            queue.task = inner.background.spawn(give_all_back(Arc::clone(inner)));
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next ones; nothing, and the task is over, if there are none.
    fn take(&self, most: usize) -> Option<Vec<LostBegin>> {
        let mut queue = self.queue();
        if queue.begins.is_empty() {
            (queue.task, queue.until) = (None, None);
            self.over.notify_waiters();
            return None;
        }
        let most = most.min(queue.begins.len());
        Some(queue.begins.drain(..most).collect())
    }
}

async fn give_all_back(inner: Arc<Inner>) {
    let mut at_once = 1;
    while let Some(begins) = inner.lost_begins.take(at_once) {
        let mut tries = JoinSet::new();
        for begin in begins {
            let inner = Arc::clone(&inner);
            tries.spawn(async move { (is_given_back(&inner, &begin).await, begin) });
        }
        let mut failed = Vec::new();
        while let Some(tried) = tries.join_next().await {
            match tried {
                Ok((true, begin)) => {
                    OrphanedBegins::look_for(&inner, begin.step, begin.held);
                }
                Ok((false, begin)) => failed.push(begin),
                // A store that panicked is not asked again.
                Err(_) => {}
            }
        }
        if failed.is_empty() {
            at_once = AT_ONCE;
            continue;
        }
        at_once = 1;
        let in_use = Arc::strong_count(&inner) > 1;
        failed.retain(|begin| in_use || Instant::now() < begin.until);
        inner.lost_begins.queue().begins.extend(failed);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Repeats a begin and releases what it claimed. Not, if that has to be tried again.
async fn is_given_back(inner: &Inner, begin: &LostBegin) -> bool {
    let LostBegin { step, held, .. } = begin;
    match bounded(inner.store.apply(step)).await {
        Ok(Answer::Claimed(claimed)) if claimed.fence != *held => {
            let release = Step::new(step.id, Action::Release(claimed.fence));
            match bounded(inner.store.apply(&release)).await {
                Ok(_) => true,
                Err(error) => !error.is_passing(),
            }
        }
        Ok(_) => true,
        Err(error) => !error.is_passing(),
    }
}

/// Looks whether a begin was carried out after all, as long as the engine is used.
async fn look_again(inner: Weak<Inner>, step: Step, held: Fence) {
    let Action::Begin(begin) = &step.action else { return };
    let half = begin.policy.lease() / 2;
    let soon = LOOK_AGAIN_AFTER.min(half);
    for pause in [soon, half - soon] {
        tokio::time::sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        // Where that cannot be seen, it is found out by giving it back once more.
        if is_claimed_by(&inner, &step, held).await.unwrap_or(true) {
            return OrphanedBegins::give_back_but(&inner, step, held);
        }
    }
}

/// Whether a claim is held that this very begin has taken, beside the one that its caller had.
async fn is_claimed_by(inner: &Inner, step: &Step, held: Fence) -> StoreResult<bool> {
    let Action::Begin(begin) = &step.action else { return Ok(false) };
    let stored = bounded(inner.store.get(&step.id)).await?;
    Ok(stored.is_some_and(|stored| match stored.entry {
        Entry::Record(record) => match record.state {
            State::InProgress(claim) => claim.token == begin.token && record.fence != held,
            _ => false,
        },
        Entry::Tombstone(_) => false,
    }))
}
