//! Steps of one kind from many callers: as few statements at a time as will do, and all who wait go
//! together with the next one.
//!
//! Nobody waits for company: a step goes as soon as a statement before it is back, or has taken
//! too long. What is won is what a statement costs besides its steps: a commit, a sync of the disk,
//! a round trip, a server process that wakes up. While a few statements at a time keep up, there
//! are no more; a slow disk, a far server or a locked record make it more.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use justonce_core::{Answer, Effect, Step, StoreError, StoreErrorKind, StoreResult};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::is_read_only;
use crate::open::Inner;
use crate::{step, together};

/// So many statements of a kind are on their way before anybody waits: one is at work while the
/// others come and go.
const FIRST_LANES: usize = 3;
/// How many statements of a kind are on their way at most.
const LANES: usize = 8;
/// How long a step waits before another statement is sent beside those that are on their way.
const PATIENCE: Duration = Duration::from_millis(2);
/// How many steps go together at most: their locks are held for milliseconds.
const TOGETHER: usize = 64;

/// The lanes of one kind of step.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    busy: usize,
    waiting: VecDeque<Waiting>,
}

/// A step that waits, and who waits for it.
struct Waiting {
    step: Step,
    reply: oneshot::Sender<StoreResult<Answer>>,
}

/// Which kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Claims,
    Completions,
}

/// Takes a step that may go together with others.
pub(crate) async fn apply(inner: &Arc<Inner>, kind: Kind, step: &Step) -> StoreResult<Answer> {
    let (reply, answer) = oneshot::channel();
    let lanes = inner.lanes(kind);
    if lanes.enter(Waiting { step: step.clone(), reply }) {
        serve(inner, kind);
    }
    let mut answer = pin!(answer);
    loop {
        match timeout(PATIENCE, &mut answer).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) => {
                let message = "the runtime that took this step to PostgreSQL has ended";
                return Err(StoreError::maybe_applied(StoreErrorKind::Stopped, message));
            }
            Err(_) => {
                if lanes.open() {
                    serve(inner, kind);
                }
            }
        }
    }
}

/// Serves those who wait, in a lane that was taken.
fn serve(inner: &Arc<Inner>, kind: Kind) {
    let serving = Serving { inner: Arc::clone(inner), kind, done: false };
    tokio::spawn(serving.serve());
}

impl Lanes {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more who waits; whether one of the first lanes was free, and is taken now.
    fn enter(&self, waiting: Waiting) -> bool {
        let mut queue = self.queue();
        queue.waiting.push_back(waiting);
        let free = queue.busy < FIRST_LANES;
        queue.busy += usize::from(free);
        free
    }

    /// Takes one more lane if anybody waits and there is one.
    fn open(&self) -> bool {
        let mut queue = self.queue();
        let opened = !queue.waiting.is_empty() && queue.busy < LANES;
        queue.busy += usize::from(opened);
        opened
    }

    /// Those who go next. Without any, the lane is free.
    fn next(&self) -> Vec<Waiting> {
        let mut queue = self.queue();
        let mut going: Vec<Waiting> = Vec::new();
        for waiting in std::mem::take(&mut queue.waiting) {
            // Whoever has stopped waiting was not served, and never is.
            if waiting.reply.is_closed() {
                continue;
            }
            let joins = |other: &Waiting| together::join(&other.step, &waiting.step);
            if going.len() < TOGETHER && going.iter().all(joins) {
                going.push(waiting);
            } else {
                queue.waiting.push_back(waiting);
            }
        }
        if going.is_empty() {
            queue.busy -= 1;
        }
        going
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("busy", &self.queue().busy).finish_non_exhaustive()
    }
}

/// A lane that serves those who wait until nobody does.
struct Serving {
    inner: Arc<Inner>,
    kind: Kind,
    done: bool,
}

impl Serving {
    async fn serve(mut self) {
        loop {
            // Whoever was woken together with the last one is about to ask as well.
            tokio::task::yield_now().await;
            let going = self.inner.lanes(self.kind).next();
            if going.is_empty() {
                self.done = true;
                return;
            }
            take(&self.inner, going).await;
        }
    }
}

impl Drop for Serving {
    /// Its runtime ends, or it panicked: those who wait are told, as nobody may be left to serve
    /// them.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.inner.lanes(self.kind).queue();
            queue.busy -= 1;
            queue.waiting.clear();
        }
    }
}

/// Takes steps together, in the order of their records.
async fn take(inner: &Inner, mut going: Vec<Waiting>) {
    going.sort_unstable_by_key(|waiting| *waiting.step.id.as_bytes());
    let (steps, replies): (Vec<_>, Vec<_>) =
        going.into_iter().map(|waiting| (waiting.step, waiting.reply)).unzip();
    let answers = match steps.len() {
        1 => Ok(vec![None]),
        _ => together::apply(&inner.db, &steps).await,
    };
    let answers = match answers {
        Ok(answers) => answers,
        // Nothing was done, and it need not be everybody's fault.
        Err(error) if error.effect() == Effect::NotApplied && is_of_one(&error) => {
            vec![None; steps.len()]
        }
        Err(error) => {
            for reply in replies {
                let _ = reply.send(Err(error.clone()));
            }
            return;
        }
    };
    let all = steps.iter().zip(answers).zip(replies).map(|((step, answer), reply)| async move {
        let answer = match answer {
            Some(answer) => Ok(answer),
            // Whoever has gone meanwhile asks for nothing any more.
            None if reply.is_closed() => return,
            None => step::apply(&inner.db, step).await,
        };
        // Whoever is gone has left its claim to be given back.
        let _ = reply.send(answer);
    });
    join_all(all).await;
}

/// Whether an error may be about one of several steps only. Where no writes are taken, those that
/// write nothing are answered.
fn is_of_one(error: &StoreError) -> bool {
    is_read_only(error)
        || !matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::TimedOut)
}
