//! Chapter: a write with an old fence changes nothing.

use justonce_core::{
    Action, Answer, Checkpoint, Failure, FailureKind, Fence, Lost, Note, NoteKind, OnLapsed,
    Operation, Outcome, RefusedStep, Resolution, Resolve, Resolver, UnknownReason, Why,
};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;
use super::stage::operation;

/// A stale owner, a fence that was never given and the ends of the range: each write of each is
/// refused and noted, whatever the record became meanwhile. Fences grow through every way in
/// which a record can be claimed again.
///
/// # Errors
///
/// If a stale write changes anything or goes unnoted, or a fence does not grow.
pub async fn fencing<B: Backend>(backend: B) -> Verdict {
    let stage = Stage::new(backend)?;
    stale_writes_are_refused(&stage).await?;
    stale_writes_after_a_release_are_refused(&stage).await?;
    late_checkpoints_change_nothing(&stage).await?;
    fences_grow(&stage).await
}

/// Checkpoints are numbered: a late copy of an earlier one is acknowledged and changes nothing.
async fn late_checkpoints_change_nothing<B: Backend>(stage: &Stage<B>) -> Verdict {
    let policy = stage.setting.on_lapsed(OnLapsed::Resume)?;
    let operation = operation("numbered", &policy)?;
    let fence = stage.claim(&operation).await?.fence;
    let save = |name: &str, number| {
        let point = Checkpoint::new(name, name.repeat(2))?.numbered(number);
        Ok::<_, Deviation>(Action::Checkpoint(fence, point))
    };
    stage.write(&operation, save("second", 2)?).await?;
    let kept = stage.kept(&operation).await?;
    for late in [save("first", 1)?, save("second", 2)?] {
        stage.write(&operation, late).await?;
        ensure_eq!(stage.kept(&operation).await?, kept, "after a late checkpoint");
    }
    stage.write(&operation, save("third", 3)?).await?;
    stage.advance(policy.lease()).await?;
    let point = stage.claim(&operation).await?.checkpoint;
    ensure_eq!(point.as_ref().map(Checkpoint::name), Some("third"), "what is passed on");
    Ok(())
}

async fn stale_writes_are_refused<B: Backend>(stage: &Stage<B>) -> Verdict {
    for rule in [OnLapsed::Rerun, OnLapsed::Resume] {
        let policy = stage.setting.on_lapsed(rule)?;
        let operation = operation(&format!("stale {rule:?}").replace(' ', "-"), &policy)?;
        let (old, new) = stage.taken_over(&operation).await?;
        for fence in [old, Fence::NONE, new.next(), Fence::new(u64::MAX)] {
            all_refused(stage, &operation, fence).await?;
        }
        // The new owner has lost nothing by it.
        let outcome = Outcome::bytes("done by the new owner");
        let complete = Action::Complete(new, outcome);
        stage.write(&operation, complete).await?;
        for fence in [old, Fence::NONE, new.next(), Fence::new(u64::MAX)] {
            all_refused(stage, &operation, fence).await?;
        }
    }
    Ok(())
}

/// The record of the stale owner is gone, and another one stands under its name.
async fn stale_writes_after_a_release_are_refused<B: Backend>(stage: &Stage<B>) -> Verdict {
    let policy = stage.setting.on_lapsed(OnLapsed::Hold)?;
    let operation = operation("released", &policy)?;
    let old = stage.claim(&operation).await?.fence;
    stage.write(&operation, Action::Release(old)).await?;
    for (action, _) in writes(old)? {
        let name = action.name();
        let answer = stage.apply(&operation, action).await?;
        ensure_eq!(answer, Answer::Lost(Lost::Gone), "{name} after a release");
        ensure_eq!(stage.get(&operation).await?, None, "{name} after a release");
    }
    let new = stage.claim(&operation).await?.fence;
    ensure!(new > old, "after a release came fence {new}, before it {old}");
    all_refused(stage, &operation, old).await
}

/// Tries every write and checks that only the timeline changes.
async fn all_refused<B: Backend>(stage: &Stage<B>, operation: &Operation, fence: Fence) -> Verdict {
    for (action, step) in writes(fence)? {
        let before = stage.kept(operation).await?;
        let name = action.name();
        let answer = stage.apply(operation, action).await?;
        let lost = Answer::Lost(Lost::Superseded);
        ensure_eq!(answer, lost, "{name} with fence {fence}");
        let after = stage.kept(operation).await?;
        ensure_eq!(after.entry, before.entry, "{name} with fence {fence}");
        let noted = matches!(
            after.timeline.notes().last(),
            Some(Note { fence: of, kind: NoteKind::Refused(what), .. })
                if *of == fence && *what == step
        );
        ensure!(noted, "{name} with fence {fence} left {:?}", after.timeline);
    }
    Ok(())
}

/// Every write with this fence, and how its refusal is called.
fn writes(fence: Fence) -> Result<Vec<(Action, RefusedStep)>, Deviation> {
    let outcome = || Outcome::bytes("by a stale owner");
    let fail = |kind| {
        let failure = Failure { outcome: outcome(), kind, jitter: 0 };
        (Action::Fail(fence, failure), RefusedStep::Fail)
    };
    let resolve = |resolution| {
        let resolve =
            Resolve { resolution, by: Resolver::probe("bank"), why: Why::new("it said so") };
        let action = Action::Resolve(fence, Box::new(resolve));
        (action, RefusedStep::Resolve)
    };
    let point = Checkpoint::new("stale", "data")?;
    Ok(vec![
        (Action::Complete(fence, outcome()), RefusedStep::Complete),
        fail(FailureKind::Passing),
        fail(FailureKind::Permanent),
        (Action::Release(fence), RefusedStep::Release),
        (Action::Renew(fence), RefusedStep::Renew),
        (Action::Checkpoint(fence, point), RefusedStep::Checkpoint),
        (Action::Abandon(fence, UnknownReason::Reported.into()), RefusedStep::Abandon),
        resolve(Resolution::Complete(outcome())),
        resolve(Resolution::Fail(outcome())),
        resolve(Resolution::Release),
    ])
}

/// One key, claimed again in every way there is.
async fn fences_grow<B: Backend>(stage: &Stage<B>) -> Verdict {
    let life = stage.setting.lease * 200;
    let rules = justonce_core::AfterRetention::Refuse(life);
    let policy = stage.setting.base().after_retention(rules).build()?;
    let operation = operation("growing", &std::sync::Arc::new(policy))?;
    let (lease, retention) = (policy.lease(), policy.retention());
    let mut fences = vec![stage.claim(&operation).await?.fence];
    // After a lapse.
    stage.advance(lease).await?;
    fences.push(stage.claim(&operation).await?.fence);
    // After a failure.
    let fail = |fence| {
        let failure =
            Failure { outcome: Outcome::bytes("away"), kind: FailureKind::Passing, jitter: 0 };
        Action::Fail(fence, failure)
    };
    stage.write(&operation, fail(newest(&fences))).await?;
    stage.advance(lease * 4).await?;
    fences.push(stage.claim(&operation).await?.fence);
    // After an abandon.
    let abandon = Action::Abandon(newest(&fences), UnknownReason::Dropped.into());
    stage.write(&operation, abandon).await?;
    fences.push(stage.claim(&operation).await?.fence);
    // After a release.
    let release = Action::Release(newest(&fences));
    stage.write(&operation, release).await?;
    fences.push(stage.claim(&operation).await?.fence);
    // After the retention and its tombstone, swept and not swept.
    for sweeps in [true, false] {
        let complete = Action::Complete(newest(&fences), Outcome::empty());
        stage.write(&operation, complete).await?;
        stage.advance(retention).await?;
        if sweeps {
            stage.apply(&operation, Action::Sweep).await?;
        }
        stage.advance(life).await?;
        if sweeps {
            stage.apply(&operation, Action::Sweep).await?;
        }
        fences.push(stage.claim(&operation).await?.fence);
    }
    ensure!(fences.is_sorted_by(|a, b| a < b), "fences must grow: {fences:?}");
    Ok(())
}

fn newest(fences: &[Fence]) -> Fence {
    fences.last().copied().unwrap_or(Fence::NONE)
}
