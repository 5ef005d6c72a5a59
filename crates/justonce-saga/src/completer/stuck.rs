//! What can be driven on, and what is stuck.

use justonce_core::store::{Cursor, DynStore, ListQuery, Stored};
use justonce_core::{
    Checkpoint, Failed, Key, OnLapsed, Operation, Policy, RecordId, Scope, State, StateName,
    StoreResult,
};

use crate::phases::Journal;
use crate::saga::{Log, StuckSaga};

/// The operation of a record that can be resumed, with its checkpoint; nothing if it cannot.
pub(super) fn resumable(stored: &Stored) -> Option<(Operation, &Checkpoint)> {
    let record = stored.entry.record()?;
    let (policy, point): (_, Option<&Checkpoint>) = match &record.state {
        State::InProgress(claim) => (&claim.policy, claim.checkpoint.as_ref()),
        State::Failed(Failed::AwaitingRetry(waiting)) => {
            (&waiting.policy, waiting.checkpoint.as_ref())
        }
        _ => return None,
    };
    let point = point.filter(|_| Policy::on_lapsed(policy) == OnLapsed::Resume)?;
    let subject = &record.subject;
    let operation = Operation::new(subject.scope.clone(), subject.key.clone(), subject.fingerprint)
        .with_policy(std::sync::Arc::clone(policy));
    Some((operation, point))
}

/// A stuck or parked saga, or an operation of parked phases.
#[derive(Clone, Debug)]
pub struct Stuck {
    /// The name of its record.
    pub id: RecordId,
    /// Whose it is.
    pub scope: Scope,
    /// Its key.
    pub key: Key,
    /// The name of the saga; of phases, the operation in the scope.
    pub saga: String,
    /// What keeps failing.
    pub stuck: StuckSaga,
}

/// The stuck and parked sagas within a scope, and parked phases, a page at a time, on any store. A
/// page may be empty and still have a next one.
///
/// Sagas that run are *in progress* too, so that each record of a page is looked into.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn stuck(
    store: &dyn DynStore,
    scope: Option<Scope>,
    after: Option<Cursor>,
) -> StoreResult<(Vec<Stuck>, Option<Cursor>)> {
    let state = Some(StateName::InProgress);
    let query = ListQuery { state, scope, after, ..ListQuery::default() };
    let page = store.list(&query).await?;
    let mut found = Vec::new();
    for summary in page.records {
        if let Some(stored) = store.get(&summary.id).await? {
            found.extend(stuck_in(summary.id, &stored));
        }
    }
    Ok((found, page.next))
}

fn stuck_in(id: RecordId, stored: &Stored) -> Option<Stuck> {
    let (operation, point) = resumable(stored)?;
    let scope = operation.scope().clone();
    let (saga, stuck) = match Log::read(point) {
        Ok(log) => (log.saga().to_owned(), StuckSaga::of(&log)),
        Err(_) => {
            let parked = Journal::saved(point).ok()?.parked().map(str::to_owned);
            let stuck = StuckSaga { steps: Vec::new(), parked };
            (scope.part("operation").unwrap_or_default(), stuck)
        }
    };
    let is_stuck = stuck.parked.is_some() || !stuck.steps.is_empty();
    is_stuck.then(|| Stuck { id, scope, key: operation.key().clone(), saga, stuck })
}
