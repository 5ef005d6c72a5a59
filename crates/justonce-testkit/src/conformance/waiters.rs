//! Chapter: every end of a claim wakes all its waiters.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{
    Action, Answer, ClaimEnd, Existing, Failure, FailureKind, Fence, Fingerprint, OnLapsed,
    Operation, Outcome, StoreResult, UnknownReason,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure};
use super::runner::Stage;
use super::stage::{LOST_AFTER, operation};

/// How many wait for one claim.
const WAITERS: u32 = 100;
/// How many keys race at once for a lost wake-up.
const KEYS: usize = 32;
/// How often each of them does.
const ROUNDS: usize = 50;
/// How often a task that must not be woken gets the chance to run.
const CHANCES: usize = 100;

/// Waiters are woken by every end of a claim and by nothing else, also when the end comes at the
/// very moment at which they begin to wait.
///
/// # Errors
///
/// If one of them is not woken, or by a renewal.
pub async fn waiters<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    for (number, ending) in ENDINGS.into_iter().enumerate() {
        woken_by(&stage, number, ending).await?;
    }
    not_woken_by_a_renewal(&stage).await?;
    no_wait_without_a_claim(&stage).await?;
    no_lost_wake_up(&stage).await
}

/// How a claim ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Complete,
    Fail,
    Release,
    Abandon,
    TakeOver,
    HeldByBegin,
    HeldBySweep,
    HeldByAStep,
}

const ENDINGS: [(OnLapsed, Ending); 13] = [
    (OnLapsed::Rerun, Ending::Complete),
    (OnLapsed::Hold, Ending::Complete),
    (OnLapsed::Rerun, Ending::Fail),
    (OnLapsed::Hold, Ending::Fail),
    (OnLapsed::Rerun, Ending::Release),
    (OnLapsed::Hold, Ending::Release),
    (OnLapsed::Rerun, Ending::Abandon),
    (OnLapsed::Hold, Ending::Abandon),
    (OnLapsed::Rerun, Ending::TakeOver),
    (OnLapsed::Resume, Ending::TakeOver),
    (OnLapsed::Hold, Ending::HeldByBegin),
    (OnLapsed::Hold, Ending::HeldBySweep),
    (OnLapsed::Hold, Ending::HeldByAStep),
];

async fn woken_by<B: Backend>(
    stage: &Stage<B>,
    number: usize,
    (rule, ending): (OnLapsed, Ending),
) -> Verdict {
    let policy = stage.setting.on_lapsed(rule)?;
    let operation = operation(&format!("ending-{number}"), &policy)?;
    let fence = stage.claim(&operation).await?.fence;
    let mut waiting = Waiting::of(stage, &operation, fence).await?;
    end(stage, &operation, fence, ending).await?;
    let told = waiting.all_return(&format!("{ending:?} under {rule:?}")).await?;
    for end in told.into_iter().flatten() {
        told_rightly(stage, &operation, &end).await?;
    }
    Ok(())
}

/// What a waiter is told is what it would be answered, and nothing for another request.
async fn told_rightly<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    end: &ClaimEnd,
) -> Verdict {
    let asked = operation.fingerprint();
    let told = Answer::Existing(end.existing(&asked));
    let answer = stage.apply(operation, Action::Peek(asked)).await?;
    ensure!(
        told.name() == answer.name() && told.completed() == answer.completed(),
        "a waiter was told {told:?}, and a duplicate is answered {answer:?}"
    );
    let other = Fingerprint::of(operation.scope(), b"something else");
    let leaked = end.existing(&other);
    ensure!(leaked == Existing::Mismatch, "another request was told {leaked:?}");
    Ok(())
}

async fn end<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    fence: Fence,
    ending: Ending,
) -> Verdict {
    let failure =
        Failure { outcome: Outcome::bytes("away"), kind: FailureKind::Passing, jitter: 0 };
    let action = match ending {
        Ending::Complete => Action::Complete(fence, Outcome::bytes("done")),
        Ending::Fail => Action::Fail(fence, failure),
        Ending::Release => Action::Release(fence),
        Ending::Abandon => Action::Abandon(fence, UnknownReason::Reported.into()),
        Ending::TakeOver | Ending::HeldByBegin | Ending::HeldBySweep | Ending::HeldByAStep => {
            stage.advance(operation.policy().lease()).await?;
            return end_lapsed(stage, operation, ending).await;
        }
    };
    stage.write(operation, action).await
}

async fn end_lapsed<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    ending: Ending,
) -> Verdict {
    match ending {
        Ending::HeldBySweep => {
            let report = stage.store.sweep(usize::MAX).await?;
            ensure!(report.held.len() == 1, "the sweep held no claim: {report:?}");
        }
        Ending::HeldByAStep => {
            stage.apply(operation, Action::Sweep).await?;
        }
        _ => {
            stage.begin(operation).await?;
        }
    }
    Ok(())
}

async fn not_woken_by_a_renewal<B: Backend>(stage: &Stage<B>) -> Verdict {
    let policy = stage.setting.on_lapsed(OnLapsed::Rerun)?;
    let operation = operation("renewed", &policy)?;
    let fence = stage.claim(&operation).await?.fence;
    let mut waiting = Waiting::of(stage, &operation, fence).await?;
    for _ in 0..2 {
        stage.advance(policy.lease() / 2).await?;
        let answer = stage.apply(&operation, Action::Renew(fence)).await?;
        let renewed = matches!(answer, Answer::Renewed(_));
        ensure!(renewed, "a renewal was answered {answer:?}");
        waiting.none_returned().await?;
    }
    stage.write(&operation, Action::Release(fence)).await?;
    waiting.all_return("a release after renewals").await?;
    Ok(())
}

/// There is nothing to wait for: the call returns at once.
async fn no_wait_without_a_claim<B: Backend>(stage: &Stage<B>) -> Verdict {
    let policy = stage.setting.on_lapsed(OnLapsed::Rerun)?;
    let absent = operation("absent", &policy)?;
    returns(stage, &absent, Fence::new(1), "an absent record").await?;
    let other = operation("other-fence", &policy)?;
    let (old, new) = stage.taken_over(&other).await?;
    returns(stage, &other, old, "an older fence").await?;
    stage.advance(policy.lease()).await?;
    returns(stage, &other, new, "a lapsed claim").await?;
    let done = operation("done", &policy)?;
    let fence = stage.claim(&done).await?.fence;
    let complete = Action::Complete(fence, Outcome::empty());
    stage.write(&done, complete).await?;
    returns(stage, &done, fence, "a completed record").await
}

async fn returns<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    fence: Fence,
    what: &str,
) -> Verdict {
    let id = operation.id();
    match timeout(LOST_AFTER, stage.store.settled(&id, fence)).await {
        Ok(result) => {
            result?;
            Ok(())
        }
        Err(_) => Err(Deviation::new(format!("settled waits for {what}"))),
    }
}

async fn no_lost_wake_up<B: Backend>(stage: &Arc<Stage<B>>) -> Verdict {
    let mut keys = JoinSet::new();
    for number in 0..KEYS {
        keys.spawn(one_key(Arc::clone(stage), number));
    }
    while let Some(verdict) = keys.join_next().await {
        verdict??;
    }
    Ok(())
}

/// Claims and ends one key again and again, each time with somebody who waits for it. Who comes
/// first changes from round to round.
async fn one_key<B: Backend>(stage: Arc<Stage<B>>, number: usize) -> Verdict {
    let policy = stage.setting.on_lapsed(OnLapsed::Rerun)?;
    let operation = operation(&format!("race-{number}"), &policy)?;
    for round in 0..ROUNDS {
        let fence = stage.claim(&operation).await?.fence;
        let (store, id) = (Arc::clone(&stage.store), operation.id());
        let waiter = tokio::spawn(async move {
            yields(round % 5).await;
            timeout(LOST_AFTER, store.settled(&id, fence)).await
        });
        yields((round + number) % 7).await;
        let action = if round % 2 == 0 {
            Action::Release(fence)
        } else {
            Action::Abandon(fence, UnknownReason::Dropped.into())
        };
        stage.write(&operation, action).await?;
        match waiter.await? {
            Ok(result) => {
                result?;
            }
            Err(_) => {
                let what = format!("a wake-up was lost in round {round} of key {number}");
                return Err(Deviation::new(what));
            }
        }
    }
    Ok(())
}

async fn yields(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Tasks that wait for a claim.
struct Waiting(JoinSet<StoreResult<Option<ClaimEnd>>>);

impl Waiting {
    /// Starts them, and returns once each has begun to wait.
    async fn of<B: Backend>(
        stage: &Stage<B>,
        operation: &Operation,
        fence: Fence,
    ) -> Result<Self, Deviation> {
        let begun = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..WAITERS {
            let (store, id) = (Arc::clone(&stage.store), operation.id());
            let begun = Arc::clone(&begun);
            tasks.spawn(async move {
                let mut settled = pin!(store.settled(&id, fence));
                let first = poll_fn(|cx| Poll::Ready(settled.as_mut().poll(cx))).await;
                begun.add_permits(1);
                match first {
                    Poll::Ready(result) => result,
                    Poll::Pending => settled.await,
                }
            });
        }
        timeout(LOST_AFTER, begun.acquire_many(WAITERS)).await??.forget();
        Ok(Self(tasks))
    }

    async fn none_returned(&mut self) -> Verdict {
        yields(CHANCES).await;
        let returned = self.0.try_join_next();
        ensure!(returned.is_none(), "a renewal woke a waiter: {returned:?}");
        Ok(())
    }

    /// What they were told.
    async fn all_return(&mut self, what: &str) -> Result<Vec<Option<ClaimEnd>>, Deviation> {
        let mut told = Vec::new();
        while !self.0.is_empty() {
            match timeout(LOST_AFTER, self.0.join_next()).await {
                Ok(Some(result)) => told.push(result??),
                Ok(None) => break,
                Err(_) => {
                    let left = self.0.len();
                    let what = format!("{what} left {left} of {WAITERS} waiters waiting");
                    return Err(Deviation::new(what));
                }
            }
        }
        Ok(told)
    }
}
