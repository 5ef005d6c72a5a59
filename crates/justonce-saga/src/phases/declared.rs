//! The phases of an operation, declared once, and the way into them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use justonce_core::engine::Begun;
use justonce_core::{
    Checkpoint, Engine, HandlerError, HeldClaim, OnFailure, OnLapsed, Operation, Outcome, Ran,
    UnknownReason,
};
use serde::Serialize;

use super::error::PhasesError;
use super::journal::{Journal, unsavable};
use super::phase_run::PhaseRun;

/// The most phases one operation may have.
pub const MAX_PHASES: usize = 1000;
/// The longest name of a phase or of a saga's step, in bytes.
pub const MAX_NAME_BYTES: usize = 100;

/// How long a phase, or one call of a saga's step, may take by default: far more than a call takes,
/// and so little that a few tries end before the claim does.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The last error that stopped the phases. The handler owns its [`PhaseRun`], and a phase may end
/// inside a transaction of another library, so neither can return it. It is the last one, because
/// a handler may have passed over those before, and a result that cannot be saved must park.
#[derive(Clone, Debug, Default)]
pub(super) struct StopCause(Arc<Mutex<Option<PhasesError>>>);

impl StopCause {
    pub(super) fn set(&self, error: PhasesError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub(super) fn get(&self) -> Option<PhasesError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The phases of an operation, by name and in order.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_core::{Engine, Key, ManualClock, OnLapsed, Operation, Outcome, Policy, Ran, Scope};
/// use justonce_saga::Phases;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
/// let resume = Policy::builder().on_lapsed(OnLapsed::Resume).build()?;
/// let operation = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?)
///     .with_policy(resume);
///
/// let phases = Phases::new(["reserve", "charge", "confirm"])?;
/// let ran = phases
///     .run(&engine, &operation, async |mut run| {
///         // Whatever is done is not done again: after a crash its saved result is handed over.
///         let room: u32 = run.phase("reserve", async |_key| Ok(17)).await?;
///         // The same key on every attempt, to send downstream.
///         let paid: bool = run.phase("charge", async |key| Ok(!key.as_str().is_empty())).await?;
///         if !paid {
///             return Ok(Outcome::bytes("declined"));
///         }
///         // Nothing is saved after the last phase: the outcome follows at once.
///         run.phase("confirm", async |_key| Ok(())).await?;
///         Ok(Outcome::bytes(format!("room {room}")))
///     })
///     .await?;
/// assert_eq!(ran, Ran::Executed(Outcome::bytes("room 17")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Phases {
    names: Arc<[String]>,
    timeouts: Timeouts,
}

/// How long phases may take.
#[derive(Clone, Debug)]
pub(super) struct Timeouts {
    all: Duration,
    some: HashMap<String, Duration>,
}

impl Timeouts {
    pub(super) fn of(&self, phase: &str) -> Duration {
        self.some.get(phase).copied().unwrap_or(self.all)
    }
}

impl Phases {
    /// Phases by name, in order.
    ///
    /// # Errors
    ///
    /// If there is no name, one is empty, too long or there twice, or they are too many.
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<Self, PhasesError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let different: HashSet<&String> = names.iter().collect();
        let fit = names.iter().all(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES);
        if different.len() != names.len() || !fit || !(1..=MAX_PHASES).contains(&names.len()) {
            return Err(PhasesError::Names(names));
        }
        let timeouts = Timeouts { all: DEFAULT_TIMEOUT, some: HashMap::new() };
        Ok(Self { names: names.into(), timeouts })
    }

    /// How long each phase may take. Then it is dropped where it waits, and it is not known whether
    /// it took effect: the operation is given up, and the next owner begins the phase again, with
    /// the same key. Default: one minute.
    ///
    /// ```
    /// use justonce_saga::Phases;
    /// use std::time::Duration;
    ///
    /// let phases = Phases::new(["reserve", "print"])?
    ///     .timeout(Duration::from_secs(10))
    ///     .timeout_of("print", Duration::from_secs(300));
    /// # Ok::<(), justonce_saga::PhasesError>(())
    /// ```
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.all = timeout;
        self
    }

    /// How long one phase may take. Default: as all others.
    #[must_use]
    pub fn timeout_of(mut self, phase: impl Into<String>, timeout: Duration) -> Self {
        self.timeouts.some.insert(phase.into(), timeout);
        self
    }

    /// The operation with its input, which is stored together with the claim: then the
    /// [`Completer`](crate::Completer) can finish it without the caller, whenever its owner died.
    ///
    /// ```
    /// # use justonce_core::{Key, OnLapsed, Operation, Policy, Scope};
    /// # use justonce_saga::Phases;
    /// # let operation = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?);
    /// let phases = Phases::new(["reserve", "charge"])?;
    /// let operation = phases.asked(operation, &("room 17", 500))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the input cannot be written as JSON, or is too large.
    pub fn asked<T: Serialize>(
        &self,
        operation: Operation,
        input: &T,
    ) -> Result<Operation, PhasesError> {
        let journal = Journal::new(&self.names).asked(input)?;
        let point = Checkpoint::new(journal.name(), journal.fitting_data(0)?);
        Ok(operation.starting_from(point.map_err(|error| unsavable(journal.name(), error))?))
    }

    /// Runs the handler if the operation is new or was given up, and replays its outcome if it is
    /// done. The handler goes through the phases of the [`PhaseRun`] in their order; it may end
    /// the operation after any of them by returning an outcome.
    ///
    /// # Errors
    ///
    /// As [`Engine::run`], and if the phases cannot go on: the program must change then.
    ///
    /// # Panics
    ///
    /// If the handler does. The next begin goes on after the last phase that was saved.
    pub async fn run<H, F>(
        &self,
        engine: &Engine,
        operation: &Operation,
        handler: H,
    ) -> Result<Ran, PhasesError>
    where
        H: FnOnce(PhaseRun) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        let policy = operation.policy();
        if policy.on_lapsed() != OnLapsed::Resume || policy.on_failure() == OnFailure::Release {
            return Err(PhasesError::Policy);
        }
        match engine.begin_or_wait(operation).await? {
            Begun::Claimed(claim) => self.execute(engine, operation, claim, handler).await,
            Begun::Existing(existing) => Ok(existing.into()),
        }
    }

    /// What was saved, for the phases that are declared now.
    pub(crate) fn read(&self, point: &Checkpoint) -> Result<Journal, PhasesError> {
        Journal::read(point, &self.names)
    }

    /// The phases under a claim: the second half of [`Phases::run`].
    ///
    /// # Errors
    ///
    /// As [`Phases::run`].
    ///
    /// # Panics
    ///
    /// If the handler does.
    pub async fn execute<H, F>(
        &self,
        engine: &Engine,
        operation: &Operation,
        mut claim: HeldClaim,
        handler: H,
    ) -> Result<Ran, PhasesError>
    where
        H: FnOnce(PhaseRun) -> F,
        F: Future<Output = Result<Outcome, HandlerError>>,
    {
        let journal = match claim.checkpoint() {
            None => Ok(Journal::new(&self.names)),
            Some(point) => self.read(point),
        };
        // Only a retry makes parked ones go on.
        let journal = journal.and_then(|journal| match journal.parked() {
            None => Ok(journal),
            Some(why) => Err(PhasesError::Parked(why.to_owned())),
        });
        let journal = match journal {
            Ok(journal) => journal,
            Err(error) => {
                // Nothing was executed, but it is half done: it must neither be freed nor end. If
                // this fails, the lease lapses and says the same.
                let _ = claim.abandon(UnknownReason::Reported).await;
                return Err(error);
            }
        };
        let stopped = StopCause::default();
        let run = async |context| {
            let timeouts = self.timeouts.clone();
            let run = PhaseRun::new(context, journal, timeouts, stopped.clone());
            handler(run).await.map_err(|error| match error {
                // Phases before it may have taken effect: the key must not be given back.
                HandlerError::NotExecuted => HandlerError::Unknown,
                error => error,
            })
        };
        let ran = engine.execute(operation, claim, run).await?;
        stopped.get().map_or(Ok(ran), Err)
    }
}
