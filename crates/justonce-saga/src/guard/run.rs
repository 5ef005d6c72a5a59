//! Judging and executing a write: one record an entity, under `resume`, which is never settled.

use std::sync::{Arc, Mutex, PoisonError};

use justonce_core::engine::{Begun, Context, SaveError, Settlement};
use justonce_core::{
    Busy, Checkpoint, Engine, Existing, HandlerError, HeldClaim, Key, Operation, Outcome, Policy,
    Ran, RunError, ScopeBuilder, State, UnknownReason,
};

use super::error::GuardError;
use super::kept::{Asked, Kept, Verdict};
use crate::endless::endless;

/// The rule by which a write is judged.
pub(super) type Rule = fn(Option<&Kept>, &Asked) -> Verdict;

/// What became of a write.
#[derive(Debug)]
pub(super) enum Came {
    Executed(Outcome),
    Failed(HandlerError),
    /// It was not executed, and this is why.
    Judged(Verdict),
    Busy(Busy),
    /// The claim was lost, or the handler's time was over.
    Unfinished,
}

/// What a guard's entities have in common.
#[derive(Clone, Debug)]
pub(super) struct Entities {
    name: Arc<str>,
    policy: Arc<Policy>,
}

impl Entities {
    pub(super) fn new(name: &str, policy: &Policy) -> Result<Self, GuardError> {
        let policy = Arc::new(endless(policy).map_err(GuardError::Policy)?);
        Ok(Self { name: Arc::from(name), policy })
    }

    /// The record of an entity.
    pub(super) fn entity(&self, scope: ScopeBuilder, key: Key) -> Result<Operation, GuardError> {
        let scope = scope.operation(&*self.name).build().map_err(GuardError::Scope)?;
        Ok(Operation::without_fingerprint(scope, key).with_policy(Arc::clone(&self.policy)))
    }
}

/// Judges a write, and executes it if it is to be.
pub(super) async fn write<H, F>(
    engine: &Engine,
    entity: &Operation,
    asked: Asked,
    rule: Rule,
    handler: H,
) -> Result<Came, GuardError>
where
    H: FnOnce(Context) -> F,
    F: Future<Output = Result<Outcome, HandlerError>>,
{
    // What is accepted only ever gets newer, so a refusal by what was read stands, without a write
    // and without waiting for whoever writes now.
    let seen = look(engine, entity).await?;
    match rule(seen.as_ref(), &asked) {
        Verdict::Execute => {}
        verdict => return Ok(Came::Judged(verdict)),
    }
    let accepted = Kept { asked, outcome: None };
    let entity = entity.clone().starting_from(accepted.point()?);
    match engine.begin_or_wait(&entity).await? {
        Begun::Existing(Existing::Busy(busy)) => Ok(Came::Busy(busy)),
        Begun::Existing(other) => Err(foreign(&other.into())),
        Begun::Claimed(claim) => under(engine, &entity, claim, &accepted, rule, handler).await,
    }
}

/// What is kept of an entity, as far as it is known without a claim.
async fn look(engine: &Engine, entity: &Operation) -> Result<Option<Kept>, GuardError> {
    let Some(stored) = engine.store().get(&entity.id()).await? else { return Ok(None) };
    let Some(record) = stored.entry.record() else { return Ok(None) };
    match &record.state {
        State::InProgress(claim) => claim.checkpoint.as_ref().map(Kept::read).transpose(),
        _ => Ok(None),
    }
}

/// The write under a claim: accepted first, then executed, then kept.
async fn under<H, F>(
    engine: &Engine,
    entity: &Operation,
    mut claim: HeldClaim,
    accepted: &Kept,
    rule: Rule,
    handler: H,
) -> Result<Came, GuardError>
where
    H: FnOnce(Context) -> F,
    F: Future<Output = Result<Outcome, HandlerError>>,
{
    let kept = claim.checkpoint().map(Kept::read).transpose();
    // The first claim brought what is accepted with it.
    let first = claim.attempt() == 1;
    let verdict = match &kept {
        Ok(_) if first => Verdict::Execute,
        Ok(kept) => rule(kept.as_ref(), &accepted.asked),
        Err(_) => Verdict::Conflict,
    };
    if verdict != Verdict::Execute {
        // If this fails, the lease lapses and says the same.
        let _ = claim.abandon(UnknownReason::Reported).await;
        return kept.map(|_| Came::Judged(verdict));
    }
    if !first && claim.save(accepted.point()?).await? != Settlement::Stored {
        return Ok(Came::Unfinished);
    }
    execute(engine, entity, claim, accepted, handler).await
}

async fn execute<H, F>(
    engine: &Engine,
    entity: &Operation,
    claim: HeldClaim,
    accepted: &Kept,
    handler: H,
) -> Result<Came, GuardError>
where
    H: FnOnce(Context) -> F,
    F: Future<Output = Result<Outcome, HandlerError>>,
{
    let said: Mutex<Result<Came, GuardError>> = Mutex::new(Ok(Came::Unfinished));
    let ran = engine.execute(entity, claim, async |context: Context| {
        let came = match handler(context.clone()).await {
            Ok(outcome) => keep(&context, accepted, outcome).await,
            Err(error) => Ok(Came::Failed(error)),
        };
        *said.lock().unwrap_or_else(PoisonError::into_inner) = came;
        // The record stays: the next write takes it over.
        Err(HandlerError::Unknown)
    });
    let ran = ran.await;
    match (said.into_inner().unwrap_or_else(PoisonError::into_inner), ran) {
        (Ok(Came::Unfinished), Err(error)) => Err(error.into()),
        // What was said is kept, whether or not the claim could be given up: its lease ends it.
        (said, _) => said,
    }
}

/// Keeps the outcome of a write that took effect.
async fn keep(context: &Context, accepted: &Kept, outcome: Outcome) -> Result<Came, GuardError> {
    let done = Kept { asked: accepted.asked, outcome: Some(outcome.clone()) };
    let point: Checkpoint = done.point()?;
    match context.save(point.name(), point.data().clone()).await {
        Ok(()) => Ok(Came::Executed(outcome)),
        Err(SaveError::Lost(_)) => Ok(Came::Unfinished),
        Err(SaveError::Refused(error)) => Err(GuardError::Unsavable(error.to_string())),
        Err(SaveError::Store(source)) => {
            Err(RunError::NotStored { outcome: Box::new(outcome), source }.into())
        }
    }
}

/// The record is another's: a guard's is never settled.
fn foreign(ran: &Ran) -> GuardError {
    let what = match ran {
        Ran::Replayed(_) => "it is completed",
        Ran::FailedBefore(_) => "it has failed",
        Ran::Unknown(_) => "it is unknown",
        Ran::Mismatch => "it has another fingerprint",
        _ => "it is over",
    };
    GuardError::Unreadable(what.to_owned())
}
