//! Chapter: an outcome is replayed for its retention, counted from completion, and not longer.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{Maintenance, SweepReport};
use justonce_core::{
    Action, AfterRetention, Answer, Entropy, Existing, Key, MAX_RETENTION, OnLapsed, Operation,
    Outcome, Policy, Scope, UnknownReason,
};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;
use super::stage::operation;

/// Retention is counted from completion, is not extended by replays, ends in a new operation or a
/// tombstone, and never removes what is running or unknown. All of it holds whether or not
/// somebody sweeps.
///
/// # Errors
///
/// If an outcome is forgotten too early, too late or against its policy.
pub async fn retention<B: Backend>(backend: B) -> Verdict {
    let stage = Stage::new(backend)?;
    for sweeps in [false, true] {
        ends_in_a_new_operation(&stage, sweeps).await?;
        ends_in_a_tombstone(&stage, sweeps).await?;
    }
    late_begins_are_refused(&stage).await?;
    never_ends_without_an_outcome(&stage).await
}

/// A key that says when it was issued is refused from the moment when all traces of its operation
/// may be gone, unless a record is there.
async fn late_begins_are_refused<B: Backend>(stage: &Stage<B>) -> Verdict {
    let (issued, entropy) = (stage.backend.now().await?, Entropy::seeded(17));
    let asked = |after| {
        let policy = Arc::new(stage.setting.base().after_retention(after).build()?);
        let scope = Scope::builder().tenant("late").build()?;
        let operation = Operation::without_fingerprint(scope, Key::issued(issued, &entropy));
        Ok::<_, Deviation>(operation.with_policy(policy))
    };
    let refuse = AfterRetention::Refuse(stage.setting.lease);
    let (in_time, late, new) = (asked(refuse)?, asked(refuse)?, asked(AfterRetention::New)?);
    let retention = late.policy().retention();
    stage.advance(retention - stage.setting.tick).await?;
    stage.claim(&in_time).await?;
    stage.advance(stage.setting.tick).await?;
    let expired = Answer::Existing(Existing::Expired(issued.after(retention)));
    ensure_eq!(stage.begin(&late).await?, expired, "a late begin");
    ensure_eq!(stage.get(&late).await?, None, "after a late begin");
    let again = stage.begin(&in_time).await?;
    let is_busy = matches!(again, Answer::Existing(Existing::Busy(_)));
    ensure!(is_busy, "a late begin of what runs was answered {again:?}");
    stage.claim(&new).await.map(drop)
}

/// Takes a long time to complete, so that counting from the begin would be seen.
async fn completed<B: Backend>(
    stage: &Stage<B>,
    name: &str,
    policy: &Arc<Policy>,
) -> Result<(Operation, Outcome), Deviation> {
    let operation = operation(name, policy)?;
    let fence = stage.claim(&operation).await?.fence;
    stage.advance(policy.lease() / 2).await?;
    let outcome = Outcome::bytes(format!("the outcome of {name}"));
    let complete = Action::Complete(fence, outcome.clone());
    stage.write(&operation, complete).await?;
    Ok((operation, outcome))
}

/// Asks again and again until just before the end of the retention.
async fn replays<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    outcome: &Outcome,
    sweeps: bool,
) -> Verdict {
    const LOOKS: u32 = 4;
    let whole = operation.policy().retention() - stage.setting.tick;
    let part = part(whole, LOOKS)?;
    for _ in 0..LOOKS {
        stage.advance(part).await?;
        if sweeps {
            let report = stage.store.sweep(usize::MAX).await?;
            ensure_eq!(report, SweepReport::default(), "a sweep before the end");
        }
        ensure_eq!(stage.begin(operation).await?.completed(), Some(outcome), "a replay");
    }
    // What the division left over, and the tick.
    let left = whole - part * LOOKS;
    stage.advance(left + stage.setting.tick).await
}

/// A part of a duration in whole milliseconds, rounded down: stores round up.
fn part(whole: Duration, parts: u32) -> Result<Duration, Deviation> {
    let millis = whole.as_millis() / u128::from(parts);
    Ok(Duration::from_millis(u64::try_from(millis)?))
}

async fn ends_in_a_new_operation<B: Backend>(stage: &Stage<B>, sweeps: bool) -> Verdict {
    let policy = Arc::new(stage.setting.base().build()?);
    let (operation, outcome) = completed(stage, &format!("new-{sweeps}"), &policy).await?;
    replays(stage, &operation, &outcome, sweeps).await?;
    if sweeps {
        let report = stage.store.sweep(usize::MAX).await?;
        ensure_eq!(report.removed, 1, "records removed at the end of the retention");
        ensure_eq!(stage.get(&operation).await?, None, "after the sweep");
    }
    let claimed = stage.claim(&operation).await?;
    ensure_eq!(claimed.attempt, 1, "the attempt of a new operation");
    let stored = stage.kept(&operation).await?;
    ensure_eq!(stored.timeline.notes().len(), 1, "notes of a new operation");
    stage.write(&operation, Action::Release(claimed.fence)).await
}

async fn ends_in_a_tombstone<B: Backend>(stage: &Stage<B>, sweeps: bool) -> Verdict {
    let life = stage.setting.lease * 200;
    let refuse = stage.setting.base().after_retention(AfterRetention::Refuse(life));
    let policy = Arc::new(refuse.build()?);
    let (operation, outcome) = completed(stage, &format!("old-{sweeps}"), &policy).await?;
    replays(stage, &operation, &outcome, sweeps).await?;
    if sweeps {
        let report = stage.store.sweep(usize::MAX).await?;
        ensure_eq!(report.buried, 1, "records buried at the end of the retention");
    }
    for _ in 0..2 {
        let answer = stage.begin(&operation).await?;
        let refused = matches!(answer, Answer::Existing(Existing::Expired(_)));
        ensure!(refused, "a late arrival was answered {answer:?}");
        stage.advance(part(life - stage.setting.tick, 2)?).await?;
    }
    stage.advance(stage.setting.tick * 2).await?;
    if sweeps {
        let report = stage.store.sweep(usize::MAX).await?;
        ensure_eq!(report.removed, 1, "tombstones removed at their end");
    }
    let claimed = stage.claim(&operation).await?;
    stage.write(&operation, Action::Release(claimed.fence)).await
}

/// Ten years pass over what runs, what lapsed and what is unknown.
async fn never_ends_without_an_outcome<B: Backend>(stage: &Stage<B>) -> Verdict {
    const AGES: Duration = MAX_RETENTION;
    let rerun = operation("for-ever-rerun", &stage.setting.on_lapsed(OnLapsed::Rerun)?)?;
    let hold = operation("for-ever-hold", &stage.setting.on_lapsed(OnLapsed::Hold)?)?;
    let told = operation("for-ever-told", &stage.setting.on_lapsed(OnLapsed::Hold)?)?;
    stage.claim(&rerun).await?;
    stage.claim(&hold).await?;
    let fence = stage.claim(&told).await?.fence;
    let abandon = Action::Abandon(fence, UnknownReason::Reported.into());
    stage.write(&told, abandon).await?;
    stage.advance(AGES).await?;
    let report = stage.store.sweep(usize::MAX).await?;
    let only_held = SweepReport { held: vec![hold.id()], ..SweepReport::default() };
    ensure_eq!(report, only_held, "a sweep after ten years");
    for operation in [&hold, &told] {
        let answer = stage.begin(operation).await?;
        let unknown = matches!(answer, Answer::Existing(Existing::Unknown(_)));
        ensure!(unknown, "unknown for ten years was answered {answer:?}");
    }
    let claimed = stage.claim(&rerun).await?;
    ensure_eq!(claimed.attempt, 2, "the attempt after ten years");
    Ok(())
}
