//! Chapter: a call whose future is dropped has happened or has not, never half.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use justonce_core::store::Records;
use justonce_core::{Action, Answer, NoteKind, OnLapsed, Operation, Outcome, StateName, Step};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;
use super::stage::{LOST_AFTER, operation};

/// How many operations lose their callers.
const OPERATIONS: usize = 200;
/// How often a future is polled at most before it is dropped.
const POLLS_MAX: usize = 6;

/// Futures of begins, writes and waits are dropped after some polls. Whatever had happened, the
/// same call once more finds a whole record, and no waiter hangs.
///
/// # Errors
///
/// If a record is half written, written twice, or a waiter is forgotten.
pub async fn dropped<B: Backend>(backend: B) -> Verdict {
    let stage = Arc::new(Stage::new(backend)?);
    let mut tasks = JoinSet::new();
    for number in 0..OPERATIONS {
        tasks.spawn(one(Arc::clone(&stage), number));
    }
    while let Some(verdict) = tasks.join_next().await {
        verdict??;
    }
    Ok(())
}

async fn one<B: Backend>(stage: Arc<Stage<B>>, number: usize) -> Verdict {
    let rules = [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold];
    let rule = rules.get(number % rules.len()).copied();
    let policy = stage.setting.on_lapsed(rule.unwrap_or(OnLapsed::Hold))?;
    let operation = operation(&format!("dropped-{number}"), &policy)?;
    let polls = number % POLLS_MAX;

    let begin = stage.begin_step(&operation);
    drop_after(polls, stage.store.apply(&begin)).await;
    let answer = stage.store.apply(&begin).await?;
    let Answer::Claimed(claimed) = answer else {
        return Err(Deviation::new(format!("a repeated begin heard {answer:?}")));
    };
    ensure_eq!(claimed.attempt, 1, "the attempt of a repeated begin");

    let fence = claimed.fence;
    let (store, id) = (Arc::clone(&stage.store), operation.id());
    let waiter = tokio::spawn(async move { store.settled(&id, fence).await });
    for polls in 0..POLLS_MAX {
        drop_after(polls, stage.store.settled(&id, fence)).await;
    }
    let outcome = Outcome::bytes("done");
    let complete = Step::new(id, Action::Complete(fence, outcome.clone()));
    drop_after(polls, stage.store.apply(&complete)).await;
    let answer = stage.store.apply(&complete).await?;
    ensure_eq!(answer, Answer::Applied, "a repeated complete");
    match timeout(LOST_AFTER, waiter).await {
        Ok(result) => {
            result??;
        }
        Err(_) => return Err(Deviation::new("a waiter was forgotten")),
    }
    ensure_whole(&stage, &operation, &outcome).await
}

async fn ensure_whole<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    outcome: &Outcome,
) -> Verdict {
    let stored = stage.kept(operation).await?;
    ensure_eq!(stored.entry.state_name(), StateName::Completed, "the state");
    let notes: Vec<&NoteKind> = stored.timeline.notes().iter().map(|note| &note.kind).collect();
    ensure!(
        matches!(notes.as_slice(), [NoteKind::Claimed(_), NoteKind::Completed]),
        "a repeated step was noted twice: {notes:?}"
    );
    ensure_eq!(stage.begin(operation).await?.completed(), Some(outcome), "the replay");
    Ok(())
}

/// Polls a future so often, unless it ends before, and drops it.
async fn drop_after<F: Future>(polls: usize, future: F) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if polled.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
