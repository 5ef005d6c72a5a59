//! Changes what is saved of an operation without a driver, without executing anything.

use bytes::Bytes;
use justonce_core::engine::{Begun, Settlement};
use justonce_core::{
    Checkpoint, Engine, HeldClaim, Operation, RunError, StoreError, UnknownReason,
};

use super::error::SagaError;
use super::log::Log;
use super::outcome::StuckSaga;
use crate::phases::Journal;
use crate::saved::PARKED;

/// What became of a claim that was taken only to change what is saved.
pub(crate) enum Taken {
    /// It is held, and has a checkpoint.
    Held(HeldClaim, Checkpoint),
    /// Another owner has it.
    Busy,
    /// It ended and was forgotten meanwhile. Nothing was executed.
    None,
}

pub(super) const fn store_error(error: StoreError) -> SagaError {
    SagaError::Run(RunError::Store(error))
}

/// Takes the claim of an operation without a driver.
pub(crate) async fn take(engine: &Engine, operation: &Operation) -> Result<Taken, SagaError> {
    let Begun::Claimed(mut claim) = engine.begin(operation).await? else {
        return Ok(Taken::Busy);
    };
    let Some(point) = claim.checkpoint().cloned() else {
        let _ = claim.release().await.map_err(store_error)?;
        return Ok(Taken::None);
    };
    Ok(Taken::Held(claim, point))
}

/// Saves a checkpoint and gives the claim up, for the next owner to find. Not, if another owner has
/// taken over meanwhile: then nothing was saved.
pub(super) async fn leave(
    mut claim: HeldClaim,
    name: &str,
    data: Bytes,
) -> Result<bool, SagaError> {
    let point = Checkpoint::new(name, data);
    let point = point.map_err(|error| SagaError::Unsavable(error.to_string()))?;
    if let Settlement::Lost(_) = claim.save(point).await.map_err(store_error)? {
        return Ok(false);
    }
    let _ = claim.abandon(UnknownReason::Reported).await.map_err(store_error)?;
    Ok(true)
}

/// Parks a saga of which so many drives in a row have failed; nothing if it has an owner, or it has
/// come on meanwhile.
pub(crate) async fn park_saga(
    engine: &Engine,
    operation: Operation,
    limit: u32,
) -> Result<Option<String>, SagaError> {
    park(engine, operation, |point, attempts| {
        let mut log = Log::read(point)?;
        let failed = log.failed_drives(attempts);
        if log.parked().is_some() || failed < limit {
            return Ok(None);
        }
        let said: Vec<String> = StuckSaga::of(&log)
            .steps
            .into_iter()
            .map(|step| format!("; {}: {}", step.planned.name, step.why.unwrap_or_default()))
            .collect();
        let why = format!("{failed} drives in a row have failed{}", said.concat());
        log.park(why.clone());
        Ok(Some((log.data()?, why)))
    })
    .await
}

/// The same for phases.
pub(crate) async fn park_phases(
    engine: &Engine,
    operation: Operation,
    limit: u32,
) -> Result<Option<String>, SagaError> {
    park(engine, operation, |point, attempts| {
        let unreadable = |error| SagaError::Unreadable(format!("{error}"));
        let journal = Journal::saved(point).map_err(unreadable)?;
        let failed = attempts.saturating_sub(journal.progressed());
        if journal.parked().is_some() || failed < limit {
            return Ok(None);
        }
        let why = format!("{failed} drives in a row have failed");
        let data = journal.park(why.clone()).data().map_err(unreadable)?;
        Ok(Some((data, why)))
    })
    .await
}

/// Parks something if `judge` says so, by what is saved and the number of attempts before this one.
async fn park(
    engine: &Engine,
    operation: Operation,
    judge: impl FnOnce(&Checkpoint, u32) -> Result<Option<(Bytes, String)>, SagaError>,
) -> Result<Option<String>, SagaError> {
    let Taken::Held(mut claim, point) = take(engine, &operation).await? else { return Ok(None) };
    match judge(&point, claim.attempt().saturating_sub(1)) {
        Ok(Some((data, why))) => {
            let is_parked = leave(claim, PARKED, data).await?;
            Ok(Some(why).filter(|_| is_parked))
        }
        judged => {
            // As it was, for the next owner.
            let _ = claim.abandon(UnknownReason::Reported).await.map_err(store_error)?;
            judged.map(|_| None)
        }
    }
}
