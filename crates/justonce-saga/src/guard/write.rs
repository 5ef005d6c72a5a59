//! Judging and executing a write: one record an entity, under `resume`, which is never settled.

use std::sync::Arc;

use justonce_core::engine::{Begun, Context, SaveError, Settlement};
use justonce_core::{
    Busy, Checkpoint, Engine, Existing, HandlerError, HeldClaim, Key, Operation, Outcome, Policy,
    Ran, RunError, ScopeBuilder, State, UnknownReason,
};

use super::error::GuardError;
use super::last_write::{Judgement, LastWrite, WriteRequest};
use crate::endless::endless;

/// The rule by which a write is judged.
pub(super) type Rule = fn(Option<&LastWrite>, &WriteRequest) -> Judgement;

/// What became of a write.
#[derive(Debug)]
pub(super) enum WriteEnd {
    Executed(Outcome),
    Failed(HandlerError),
    /// It was not executed, and this is why.
    Judged(Judgement),
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
    asked: WriteRequest,
    rule: Rule,
    handler: H,
) -> Result<WriteEnd, GuardError>
where
    H: FnOnce(Context) -> F,
    F: Future<Output = Result<Outcome, HandlerError>>,
{
    // What is accepted only ever gets newer, so a refusal by what was read stands, without a write
    // and without waiting for a write that runs.
    let seen = look(engine, entity).await?;
    match rule(seen.as_ref(), &asked) {
        Judgement::Execute => {}
        judgement => return Ok(WriteEnd::Judged(judgement)),
    }
    let accepted = LastWrite { asked, outcome: None };
    let entity = entity.clone().starting_from(accepted.point()?);
    match engine.begin_or_wait(&entity).await? {
        Begun::Existing(Existing::Busy(busy)) => Ok(WriteEnd::Busy(busy)),
        Begun::Existing(other) => Err(foreign(&other.into())),
        Begun::Claimed(claim) => under(engine, &entity, claim, &accepted, rule, handler).await,
    }
}

/// What is kept of an entity, as far as it is known without a claim.
async fn look(engine: &Engine, entity: &Operation) -> Result<Option<LastWrite>, GuardError> {
    let Some(stored) = engine.store().get(&entity.id()).await? else { return Ok(None) };
    let Some(record) = stored.entry.record() else { return Ok(None) };
    match &record.state {
        State::InProgress(claim) => claim.checkpoint.as_ref().map(LastWrite::read).transpose(),
        _ => Ok(None),
    }
}

/// The write under a claim: accepted first, then executed, then kept.
async fn under<H, F>(
    engine: &Engine,
    entity: &Operation,
    mut claim: HeldClaim,
    accepted: &LastWrite,
    rule: Rule,
    handler: H,
) -> Result<WriteEnd, GuardError>
where
    H: FnOnce(Context) -> F,
    F: Future<Output = Result<Outcome, HandlerError>>,
{
    let kept = claim.checkpoint().map(LastWrite::read).transpose();
    // The first claim brought what is accepted with it.
    let first = claim.attempt() == 1;
    let judgement = match &kept {
        Ok(_) if first => Judgement::Execute,
        Ok(kept) => rule(kept.as_ref(), &accepted.asked),
        Err(_) => Judgement::Conflict,
    };
    if judgement != Judgement::Execute {
        // If this fails, the lease lapses and says the same.
        let _ = claim.abandon(UnknownReason::Reported).await;
        return kept.map(|_| WriteEnd::Judged(judgement));
    }
    if !first && claim.save(accepted.point()?).await? != Settlement::Stored {
        return Ok(WriteEnd::Unfinished);
    }
    let handler = async |context: Context| {
        let came = match handler(context.clone()).await {
            Ok(outcome) => keep(&context, accepted, outcome).await,
            Err(error) => Ok(WriteEnd::Failed(error)),
        };
        // The record stays: the next write takes it over.
        (Err(HandlerError::Unknown), came)
    };
    let (ran, came) = engine.execute_with(entity, claim, handler).await;
    match (came.unwrap_or(Ok(WriteEnd::Unfinished)), ran) {
        (Ok(WriteEnd::Unfinished), Err(error)) => Err(error.into()),
        // The outcome is kept whether or not the claim could be abandoned: its lease ends it.
        (came, _) => came,
    }
}

/// Keeps the outcome of a write that took effect.
async fn keep(
    context: &Context,
    accepted: &LastWrite,
    outcome: Outcome,
) -> Result<WriteEnd, GuardError> {
    let done = LastWrite { asked: accepted.asked, outcome: Some(outcome.clone()) };
    let point: Checkpoint = done.point()?;
    match context.save(point.name(), point.data().clone()).await {
        Ok(()) => Ok(WriteEnd::Executed(outcome)),
        Err(SaveError::Lost(_)) => Ok(WriteEnd::Unfinished),
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
