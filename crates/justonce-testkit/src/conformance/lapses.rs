//! Chapter: what time ends, ended by time that really passes, for many operations at once.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Maintenance;
use justonce_core::{
    Action, AfterRetention, Answer, BackOff, Checkpoint, Claimed, Entropy, Existing, Failure,
    FailureKind, Fence, Key, Lost, OnFailure, OnLapsed, Operation, Outcome, Step, UnknownReason,
};

use super::backend::Backend;
use super::crowd::{Counted, Crowd, done, other};
use super::deviation::{Verdict, ensure, ensure_eq};
use super::races::one_claim;
use super::runner::Stage;

/// How long leases, back-offs and retentions are here: they are waited for.
const SHORT: Duration = Duration::from_millis(500);
/// The name of the checkpoint that is passed on.
const HALF: &str = "half";

/// Leases lapse, back-offs and retentions end, for many operations at the same time: then several
/// callers begin each of them at once, and one claims it, or none under `hold`. Owners that were
/// superseded complete in one batch with others. For stores on a clock that runs by itself: the
/// chapter waits.
///
/// # Errors
///
/// If an operation is claimed twice or not at all, a caller gets a wrong answer or the outcome of
/// another operation, or a store with batches sends none.
pub async fn lapses<B: Backend>(backend: B) -> Verdict {
    let stage = Stage::new(backend)?;
    for rule in [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold] {
        leases_lapse(&stage, rule).await?;
        back_offs_end(&stage, rule).await?;
        retentions_end(&stage, rule).await?;
    }
    late_begins_are_refused(&stage).await
}

fn fences(claims: &[Claimed]) -> Vec<Fence> {
    claims.iter().map(|claimed| claimed.fence).collect()
}

async fn leases_lapse<B: Backend>(stage: &Stage<B>, rule: OnLapsed) -> Verdict {
    let long = stage.setting.on_lapsed(rule)?;
    let short = stage.setting.base().on_lapsed(rule).lease(SHORT).lease_cap(SHORT).build()?;
    let crowd = Crowd::new(stage, &format!("lapses-{rule:?}"), &Arc::new(short))?;
    let first = fences(&crowd.claim().await?);
    if rule != OnLapsed::Hold {
        // Also what comes after the lapse is saved. Under `hold` it would be refused.
        let point = Checkpoint::new(HALF, b"way there".to_vec())?;
        let both = crowd.operations.iter().zip(&first);
        let save = both.map(|(operation, fence)| {
            Step::new(operation.id(), Action::Checkpoint(*fence, point.clone()))
        });
        for answer in stage.all(save).await? {
            ensure_eq!(answer, Answer::Applied, "a checkpoint");
        }
    }
    stage.advance(SHORT).await?;
    for operation in crowd.operations.iter().filter(|_| rule != OnLapsed::Hold) {
        let peek = Action::Peek(operation.fingerprint());
        ensure_eq!(stage.apply(operation, peek).await?, Answer::Claimable, "a peek after a lapse");
    }
    let crowd = crowd.under(&long);
    let asked = crowd.ask().await?;
    if rule == OnLapsed::Hold {
        for (answers, fence) in asked.iter().zip(&first) {
            ensure_held_once(answers, *fence)?;
        }
        return crowd.end(&first).await;
    }
    let mut owners = Vec::new();
    for (answers, before) in asked.iter().zip(&first) {
        let claimed = one_claim(answers)?;
        ensure_eq!(claimed.attempt, 2, "the attempt after a lapse");
        ensure!(claimed.fence > *before, "{} after {before}", claimed.fence);
        let point = claimed.checkpoint.as_ref().map(Checkpoint::name);
        let passed_on = (rule == OnLapsed::Resume).then_some(HALF);
        ensure_eq!(point, passed_on, "the checkpoint of the next attempt under {rule:?}");
        owners.push(claimed.fence);
    }
    // Every second completion by the owner before.
    let mixed = first.iter().zip(&owners).enumerate();
    let mixed = mixed.map(|(n, (old, new))| if n.is_multiple_of(2) { *old } else { *new });
    let mixed: Vec<Fence> = mixed.collect();
    for (number, answer) in crowd.complete(&mixed, done).await?.into_iter().enumerate() {
        let is_old = number.is_multiple_of(2);
        let expected = if is_old { Answer::Lost(Lost::Superseded) } else { Answer::Applied };
        ensure_eq!(answer, expected, "the completion of operation {number}");
    }
    crowd.end(&owners).await
}

fn ensure_held_once(answers: &[Answer], fence: Fence) -> Verdict {
    let mut held = 0;
    for answer in answers {
        held += usize::from(matches!(answer, Answer::Held(_)));
        let is_unknown = matches!(
            answer,
            Answer::Existing(Existing::Unknown(unknown)) | Answer::Held(unknown)
                if unknown.fence == fence && unknown.reason == UnknownReason::Lapsed
        );
        ensure!(is_unknown, "a held operation was answered {answer:?}");
    }
    ensure_eq!(held, 1, "begins that heard that they made it unknown");
    Ok(())
}

async fn back_offs_end<B: Backend>(stage: &Stage<B>, rule: OnLapsed) -> Verdict {
    let back_off = OnFailure::Retry(BackOff { first: SHORT, max: SHORT });
    let policy = stage.setting.base().on_lapsed(rule).on_failure(back_off).build()?;
    let crowd = Crowd::new(stage, &format!("back-off-{rule:?}"), &Arc::new(policy))?;
    let first = fences(&crowd.claim().await?);
    for (operation, fence) in crowd.operations.iter().zip(&first) {
        let outcome = Outcome::bytes("the bank is away");
        let failure = Failure { outcome, kind: FailureKind::Passing, jitter: u32::MAX };
        stage.write(operation, Action::Fail(*fence, failure)).await?;
    }
    stage.advance(SHORT).await?;
    let mut owners = Vec::new();
    for (answers, before) in crowd.ask().await?.iter().zip(&first) {
        let claimed = one_claim(answers)?;
        ensure_eq!(claimed.attempt, 2, "the attempt after a back-off");
        ensure!(claimed.fence > *before, "{} after {before}", claimed.fence);
        owners.push(claimed.fence);
    }
    crowd.compete(&owners).await
}

async fn retentions_end<B: Backend>(stage: &Stage<B>, rule: OnLapsed) -> Verdict {
    for after in [AfterRetention::New, AfterRetention::Refuse(stage.setting.much_later)] {
        let base = || stage.setting.base().on_lapsed(rule).after_retention(after);
        let (long, short) = (Arc::new(base().build()?), base().retention(SHORT).build()?);
        let crowd = Crowd::new(stage, &format!("retention-{rule:?}-{after:?}"), &Arc::new(short))?;
        let first = fences(&crowd.claim().await?);
        for answer in crowd.complete(&first, |_| other()).await? {
            ensure_eq!(answer, Answer::Applied, "the completion of an owner");
        }
        stage.advance(SHORT).await?;
        let crowd = crowd.under(&long);
        let asked = crowd.ask().await?;
        if after != AfterRetention::New {
            for answer in asked.concat() {
                let is_refused = matches!(answer, Answer::Existing(Existing::Expired(_)));
                ensure!(is_refused, "a tombstone answered {answer:?}");
            }
            let report = stage.store.sweep(usize::MAX).await?;
            ensure_eq!(usize::try_from(report.buried)?, crowd.operations.len(), "records buried");
            for answer in crowd.complete(&first, done).await? {
                ensure_eq!(answer, Answer::Lost(Lost::Gone), "a completion after the retention");
            }
            continue;
        }
        let mut owners = Vec::new();
        for (answers, before) in asked.iter().zip(&first) {
            let claimed = one_claim(answers)?;
            ensure_eq!(claimed.attempt, 1, "the attempt of a new operation");
            ensure!(claimed.fence > *before, "{} after {before}", claimed.fence);
            owners.push(claimed.fence);
        }
        crowd.end(&owners).await?;
    }
    Ok(())
}

/// Keys that say when they were issued, among keys that do not: a request that comes after all
/// traces of its operation may be gone is refused.
async fn late_begins_are_refused<B: Backend>(stage: &Stage<B>) -> Verdict {
    let refuse = AfterRetention::Refuse(stage.setting.much_later);
    let policy = Arc::new(stage.setting.base().after_retention(refuse).build()?);
    let mut crowd = Crowd::new(stage, "late", &policy)?;
    let (now, entropy) = (stage.backend.now().await?, Entropy::seeded(17));
    let retention = u64::try_from(policy.retention().as_millis())?;
    // The store's clock may be a little behind the machine's.
    let over = u64::try_from((policy.retention() + SHORT).as_millis())?;
    let issued = |millis_ago: u64| {
        let then = justonce_core::Timestamp::from_millis(now.as_millis() - millis_ago);
        Key::issued(then, &entropy)
    };
    for (number, operation) in crowd.operations.iter_mut().enumerate() {
        let key = match number % 4 {
            0 => issued(over),
            1 => issued(retention / 2),
            _ => continue,
        };
        let (scope, print) = (operation.scope().clone(), operation.fingerprint());
        *operation = Operation::new(scope, key, print).with_policy(Arc::clone(&policy));
    }
    let counted = Counted::new(stage);
    for (number, answers) in crowd.ask().await?.into_iter().enumerate() {
        if number.is_multiple_of(4) {
            for answer in answers {
                let is_refused = matches!(answer, Answer::Existing(Existing::Expired(_)));
                ensure!(is_refused, "a late begin was answered {answer:?}");
            }
        } else {
            one_claim(&answers)?;
        }
    }
    counted.ensure_batched("begins of which some are late")
}
