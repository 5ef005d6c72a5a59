//! Sagas as anybody sees them in a store, without the program that runs them.

use justonce_core::engine::Begun;
use justonce_core::store::Stored;
use justonce_core::{
    Checkpoint, Engine, Failed, Header, MAX_CHECKPOINT_NAME_BYTES, OnConcurrent, Operation,
    Outcome, RecordId, Scope, State, UnknownReason,
};

use super::error::SagaError;
use super::log::Log;
use super::outcome::{MARK, MARK_VERSION, StuckSaga};

/// Where a saga is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SagaState {
    /// It goes ahead or back, or waits for somebody who drives it on.
    Running,
    /// Something keeps failing that cannot be given up.
    Stuck,
    /// All steps are done.
    Done,
    /// All that was done is undone.
    RolledBack,
}

impl SagaState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Running, Self::Stuck, Self::Done, Self::RolledBack];

    /// The name in messages and the admin API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stuck => "stuck",
            Self::Done => "done",
            Self::RolledBack => "rolled_back",
        }
    }

    /// Reads a name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A saga as its record tells of it.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_core::{Engine, Key, ManualClock, Scope};
/// use justonce_saga::{Call, Retried, Saga, SagaState, SagaStep, SeenSaga, retry};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::new(MemoryStore::new(ManualClock::default()));
/// let saga: Saga<u64> =
///     Saga::builder("order").step(SagaStep::new("pay", async |_: Call<u64>| Ok(()))).build()?;
/// let operation = saga.operation(Scope::builder(), Key::client("order-17")?, &5)?;
/// saga.run(&engine, &operation).await?;
///
/// // Somebody else, who has the store and not the program.
/// let stored = engine.store().get(&operation.id()).await?.expect("it is kept");
/// let seen = SeenSaga::of(&stored).expect("it is a saga");
/// assert_eq!((seen.saga.as_str(), seen.state), ("order", SagaState::Done));
/// let retried = retry(&engine, operation.id(), "ann").await?;
/// assert_eq!(retried, Retried::NotStuck(SagaState::Done));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SeenSaga {
    /// The name of the saga.
    pub saga: String,
    /// Where it is.
    pub state: SagaState,
    /// What became of each step; nothing once it has ended.
    pub log: Option<Log>,
}

impl SeenSaga {
    /// The saga of a record; nothing if the record is of something else.
    ///
    /// A saga that has not ended is told by its log: of a version that is known, and of the saga
    /// that the scope names. One that has ended is told by the mark that its answer carries.
    #[must_use]
    pub fn of(stored: &Stored) -> Option<Self> {
        let record = stored.entry.record()?;
        let scope = &record.subject.scope;
        match &record.state {
            State::InProgress(claim) => Self::in_progress(scope, claim.checkpoint.as_ref()?),
            State::Unknown(unknown) => Self::in_progress(scope, unknown.checkpoint.as_ref()?),
            State::Completed(end) => Self::ended(scope, &end.outcome, SagaState::Done),
            State::Failed(Failed::Final(end)) => {
                Self::ended(scope, &end.outcome, SagaState::RolledBack)
            }
            State::Failed(Failed::Waiting(_)) => None,
        }
    }

    fn in_progress(scope: &Scope, point: &Checkpoint) -> Option<Self> {
        let log = Log::read(point).ok()?;
        let saga = scope.part("operation").filter(|name| name == log.saga())?;
        let is_stuck = !StuckSaga::of(&log).steps.is_empty();
        let state = if is_stuck { SagaState::Stuck } else { SagaState::Running };
        Some(Self { saga, state, log: Some(log) })
    }

    fn ended(scope: &Scope, outcome: &Outcome, state: SagaState) -> Option<Self> {
        let is_mark = |header: &Header| *header.name == *MARK && *header.value == *MARK_VERSION;
        let saga = scope.part("operation").filter(|_| outcome.headers().iter().any(is_mark))?;
        Some(Self { saga, state, log: None })
    }
}

/// What became of asking for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// It is due: the next completer or caller drives it on.
    Due,
    /// It is not stuck, but this.
    NotStuck(SagaState),
    /// Somebody is driving it just now.
    Busy,
    /// There is no saga of this name.
    None,
}

/// Makes a stuck saga due again, for the next [`Completer`](crate::Completer) or caller, whatever
/// pause between tries they keep. Needs no program that knows the saga. Who asked is in the
/// timeline.
///
/// Nothing is executed here. If the process dies half-way, the saga is as stuck as before, or due.
///
/// # Errors
///
/// If the store fails. It may be repeated.
pub async fn retry(engine: &Engine, id: RecordId, by: &str) -> Result<Retried, SagaError> {
    let store = |error| SagaError::Run(justonce_core::RunError::Store(error));
    let Some(stored) = engine.store().get(&id).await.map_err(store)? else {
        return Ok(Retried::None);
    };
    let (Some(seen), Some(record)) = (SeenSaga::of(&stored), stored.entry.record()) else {
        return Ok(Retried::None);
    };
    let State::InProgress(claim) = &record.state else {
        return Ok(Retried::NotStuck(seen.state));
    };
    if seen.state != SagaState::Stuck {
        return Ok(Retried::NotStuck(seen.state));
    }
    let subject = &record.subject;
    let operation = Operation::new(subject.scope.clone(), subject.key.clone(), subject.fingerprint)
        .with_policy(std::sync::Arc::clone(&claim.policy))
        .on_concurrent(OnConcurrent::Reject);
    let Begun::Claimed(mut claim) = engine.begin(&operation).await? else {
        return Ok(Retried::Busy);
    };
    let Some(point) = claim.checkpoint() else {
        // It ended and was forgotten meanwhile. Nothing was executed.
        let _ = claim.release().await.map_err(store)?;
        return Ok(Retried::None);
    };
    // As it is under this claim: somebody may have gone on with it since it was read.
    let log = Log::read(point)?.retried();
    let point = Checkpoint::new(&name(by), log.data()?)
        .map_err(|error| SagaError::Unsavable(error.to_string()))?;
    let _ = claim.save(point).await.map_err(store)?;
    let _ = claim.abandon(UnknownReason::Reported).await.map_err(store)?;
    Ok(Retried::Due)
}

/// What the timeline calls the recovery point.
fn name(by: &str) -> String {
    let mut name = format!("retried by {by}");
    while name.len() > MAX_CHECKPOINT_NAME_BYTES {
        name.pop();
    }
    name
}
