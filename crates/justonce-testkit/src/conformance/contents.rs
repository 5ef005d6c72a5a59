//! Chapter: what is stored reads back as it was, up to the limits of every kind.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::Records;
use justonce_core::{
    Abandonment, Action, AfterRetention, Answer, BackOff, Checkpoint, Fence, Fingerprint, Key,
    MAX_BODY_BYTES, MAX_CHECKPOINT_BYTES, MAX_HEADERS, MAX_KEY_BYTES, MAX_LEASE, MAX_RETENTION,
    MIN_LEASE, OnFailure, OnLapsed, Operation, Outcome, Owner, Policy, Resolution, Resolve,
    Resolver, Scope, State, Step, UnknownReason, Why,
};

use super::backend::Backend;
use super::deviation::{Deviation, Verdict, ensure, ensure_eq};
use super::runner::Stage;

/// Outcomes, checkpoints, keys, scopes, owners, policies and notes: empty, odd and as large as
/// they may be.
///
/// # Errors
///
/// If anything reads back otherwise than it was stored.
pub async fn contents<B: Backend>(backend: B) -> Verdict {
    let stage = Stage::new(backend)?;
    let policies = policies()?;
    for (number, outcome) in outcomes()?.into_iter().enumerate() {
        let policy = policies.iter().cycle().nth(number).cloned();
        let operation = odd_operation(number, policy.unwrap_or_default())?;
        one(&stage, &operation, number, &outcome).await?;
    }
    Ok(())
}

async fn one<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    number: usize,
    outcome: &Outcome,
) -> Verdict {
    let owner = Owner::new(&format!("ö {number} \u{1f980} '\"\\ {{}}"));
    let step = Step::begin(operation, owner.clone(), stage.token());
    let answer = stage.store.apply(&step).await?;
    let Answer::Claimed(claimed) = answer else {
        return Err(Deviation::new(format!("{number}: {answer:?}")));
    };
    let fence = claimed.fence;
    let point = checkpoint(number)?;
    let save = Action::Checkpoint(fence, point.clone());
    stage.write(operation, save).await?;
    let stored = stage.kept(operation).await?;
    let Some(record) = stored.entry.record() else {
        return Err(Deviation::new(format!("{number}: no record")));
    };
    ensure_eq!(record.subject.scope, *operation.scope(), "the scope");
    ensure_eq!(record.subject.key, *operation.key(), "the key");
    let print = operation.fingerprint();
    ensure_eq!(record.subject.fingerprint, print, "the fingerprint");
    let State::InProgress(claim) = &record.state else {
        return Err(Deviation::new(format!("{number}: {record:?}")));
    };
    ensure_eq!(claim.owner, owner, "the owner");
    ensure_eq!(claim.policy, *operation.policy(), "the policy");
    ensure!(claim.checkpoint == Some(point), "{number}: the checkpoint changed");
    end(stage, operation, number, fence, outcome).await?;
    let answer = stage.begin(operation).await?;
    ensure!(answer.completed() == Some(outcome), "outcome {number} was replayed as {answer:?}");
    Ok(())
}

/// Half of the outcomes are stored by the owner, the others by a resolution.
async fn end<B: Backend>(
    stage: &Stage<B>,
    operation: &Operation,
    number: usize,
    fence: Fence,
    outcome: &Outcome,
) -> Verdict {
    if number.is_multiple_of(2) || operation.policy().on_lapsed() != OnLapsed::Hold {
        let complete = Action::Complete(fence, outcome.clone());
        return stage.write(operation, complete).await;
    }
    // What the owner saw may hold anything, and is kept as it was cut.
    let cause = Why::new(&format!("status=500 100% \u{0}\n{}", "ü".repeat(1000)));
    let reason = UnknownReason::TimedOut;
    let abandon = Action::Abandon(fence, Abandonment { reason, cause: Some(cause.clone()) });
    stage.write(operation, abandon).await?;
    let stored = stage.kept(operation).await?;
    let last = stored.timeline.notes().last().and_then(|note| note.kind.unknown_because());
    ensure_eq!(last, Some((reason, Some(&cause))), "the note of an abandon");
    let (by, why) = (Resolver::callback("ü\u{0}\n"), Why::new(&"ß".repeat(1000)));
    let resolve = Resolve {
        resolution: Resolution::Complete(outcome.clone()),
        by: by.clone(),
        why: why.clone(),
    };
    let resolve = Action::Resolve(fence, Box::new(resolve));
    stage.write(operation, resolve).await?;
    let stored = stage.kept(operation).await?;
    let how = justonce_core::HowResolved::Completed;
    let expected = justonce_core::NoteKind::Resolved(by, how, why);
    let last = stored.timeline.notes().last().map(|note| &note.kind);
    ensure_eq!(last, Some(&expected), "the note of a resolution");
    Ok(())
}

fn outcomes() -> Result<Vec<Outcome>, Deviation> {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    // No pattern, so that it cannot be compressed.
    let entropy = justonce_core::Entropy::seeded(7);
    let noise: Vec<u8> =
        (0..MAX_BODY_BYTES / 8).flat_map(|_| entropy.next_u64().to_le_bytes()).collect();
    let headers = (0..MAX_HEADERS).fold(Outcome::builder(), |builder, number| {
        builder.header(format!("x-{}", number % 10), number.to_string())
    });
    Ok(vec![
        Outcome::empty(),
        Outcome::bytes("receipt 17"),
        Outcome::bytes(every_byte.clone()),
        Outcome::bytes(vec![0; MAX_BODY_BYTES]),
        Outcome::bytes(noise),
        Outcome::builder().status(0).build()?,
        Outcome::builder().status(u16::MAX).too_large(u64::MAX).build()?,
        Outcome::builder().header("", "").header("", every_byte).build()?,
        headers.status(201).body("{}").build()?,
    ])
}

fn checkpoint(number: usize) -> Result<Checkpoint, Deviation> {
    Ok(match number % 3 {
        0 => Checkpoint::new("\u{1f980}", "")?,
        1 => Checkpoint::new(&"n".repeat(128), vec![255; MAX_CHECKPOINT_BYTES])?,
        _ => Checkpoint::new("' or 1=1 --", "\u{0}")?,
    })
}

fn odd_operation(number: usize, policy: Arc<Policy>) -> Result<Operation, Deviation> {
    let scope = match number % 3 {
        0 => Scope::global(),
        1 => Scope::builder().tenant("ä&=%\u{0}").secret("principal", "sk").build()?,
        _ => Scope::builder().tenant("t".repeat(1000)).build()?,
    };
    let mark = char::from_digit(u32::try_from(number)?, 36).unwrap_or('z');
    let key = Key::client(format!("{mark}{} ", " ~'\"\\{}*?".repeat(MAX_KEY_BYTES / 9 - 1)))?;
    let print = match number % 3 {
        0 => Fingerprint::of(&scope, b"asked"),
        1 => Fingerprint::UNCHECKED,
        _ => Fingerprint::from_parts(u8::MAX, [u8::MAX; 32]),
    };
    Ok(Operation::new(scope, key, print).with_policy(policy))
}

fn policies() -> Result<Vec<Arc<Policy>>, Deviation> {
    let back_off = BackOff { first: Duration::ZERO, max: MAX_RETENTION };
    let longest = Policy::builder()
        .lease(MAX_LEASE)
        .lease_cap(MAX_LEASE)
        .on_lapsed(OnLapsed::Hold)
        .on_failure(OnFailure::Retry(back_off))
        .max_attempts(Some(NonZeroU32::MAX))
        .retention(MAX_RETENTION)
        .after_retention(AfterRetention::Refuse(MAX_RETENTION));
    let hold = Policy::builder().on_lapsed(OnLapsed::Hold);
    let resume = Policy::builder().on_lapsed(OnLapsed::Resume).max_attempts(None);
    Ok(vec![
        Arc::default(),
        Arc::new(longest.build()?),
        Arc::new(resume.lease(MIN_LEASE.max(Duration::from_secs(1))).build()?),
        Arc::new(hold.build()?),
    ])
}
