//! Sagas as anybody sees them in a store, without the program that runs them.

use justonce_core::store::Stored;
use justonce_core::{
    Checkpoint, Engine, Failed, Header, MAX_CHECKPOINT_NAME_BYTES, Operation, Outcome, RecordId,
    Scope, State,
};

use super::error::SagaError;
use super::log::Log;
use super::outcome::{MARK, MARK_VERSION, StuckSaga};
use super::park::{Taken, leave, store_error, take};
use crate::phases::Journal;

/// Where a saga is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SagaState {
    /// It goes ahead or back, or waits for a driver.
    Running,
    /// Something keeps failing that cannot be given up.
    Stuck,
    /// It failed too often, or cannot be saved: it is not driven on before a retry.
    Parked,
    /// All steps are done.
    Done,
    /// All that was done is undone.
    RolledBack,
}

impl SagaState {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Stuck, Self::Parked, Self::Done, Self::RolledBack];

    /// The name in messages and the admin API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stuck => "stuck",
            Self::Parked => "parked",
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
/// // A tool that has the store and not the program.
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
    /// A saga that has not ended is recognised by its log: of a version that is known, and of the
    /// saga that the scope names. One that has ended is recognised by the mark that its outcome
    /// carries.
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
            State::Failed(Failed::AwaitingRetry(_)) => None,
        }
    }

    fn in_progress(scope: &Scope, point: &Checkpoint) -> Option<Self> {
        let log = Log::read(point).ok()?;
        let saga = scope.part("operation").filter(|name| name == log.saga())?;
        let StuckSaga { steps, parked } = StuckSaga::of(&log);
        let state = match (parked, steps.is_empty()) {
            (Some(_), _) => SagaState::Parked,
            (None, false) => SagaState::Stuck,
            (None, true) => SagaState::Running,
        };
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
    /// It is being driven just now.
    Busy,
    /// There is no saga of this name.
    None,
}

/// Makes a stuck or parked saga due again, for the next [`Completer`](crate::Completer) or caller,
/// whatever pause between tries they keep; parked phases too. Needs no program that knows them. Who
/// asked is in the timeline.
///
/// Nothing is executed here. If the process dies half-way, it is as stuck as before, or due.
///
/// # Errors
///
/// If the store fails. It may be repeated.
pub async fn retry(engine: &Engine, id: RecordId, by: &str) -> Result<Retried, SagaError> {
    let Some(stored) = engine.store().get(&id).await.map_err(store_error)? else {
        return Ok(Retried::None);
    };
    let Some(record) = stored.entry.record() else { return Ok(Retried::None) };
    let seen = SeenSaga::of(&stored);
    let State::InProgress(claim) = &record.state else {
        return Ok(seen.map_or(Retried::None, |seen| Retried::NotStuck(seen.state)));
    };
    let is_parked = |point: &Checkpoint| Journal::parked_in(point).is_some();
    match &seen {
        Some(SeenSaga { state: SagaState::Stuck | SagaState::Parked, .. }) => {}
        Some(seen) => return Ok(Retried::NotStuck(seen.state)),
        None if claim.checkpoint.as_ref().is_some_and(is_parked) => {}
        None => return Ok(Retried::None),
    }
    let subject = &record.subject;
    let operation = Operation::new(subject.scope.clone(), subject.key.clone(), subject.fingerprint)
        .with_policy(std::sync::Arc::clone(&claim.policy));
    let (claim, point) = match take(engine, &operation).await? {
        Taken::Held(claim, point) => (claim, point),
        Taken::Busy => return Ok(Retried::Busy),
        Taken::None => return Ok(Retried::None),
    };
    // As it is under this claim: another owner may have gone on with it since it was read.
    let data = match seen {
        Some(_) => Log::read(&point)?.retried().unparked(claim.attempt()).data()?,
        None => Journal::unparked_data(&point, claim.attempt())
            .map_err(|error| SagaError::Unreadable(error.to_string()))?,
    };
    let is_due = leave(claim, &name(by), data).await?;
    Ok(if is_due { Retried::Due } else { Retried::Busy })
}

/// What the timeline calls the checkpoint.
fn name(by: &str) -> String {
    let mut name = format!("retried by {by}");
    while name.len() > MAX_CHECKPOINT_NAME_BYTES {
        name.pop();
    }
    name
}
