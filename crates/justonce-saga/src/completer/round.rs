//! Rounds: finds operations without a driver, and drives them on.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use justonce_core::worker::{Next, Rounds, Worker};
use justonce_core::{Engine, Entropy, HandlerError, Outcome, RecordId, ScopeError, StateName};

use super::driver::{Driver, PhasesDriver};
use super::known::Known;
use super::pool::Pool;
use super::search::{Kind, Search};
use super::settings::CompleterSettings;
use crate::phases::{PhaseRun, Phases};

/// The states in which an operation may wait to be driven on.
const STATES: [StateName; 3] = [StateName::InProgress, StateName::Failed, StateName::Released];

/// Finds operations and sagas whose owner died, or whose retry is due, and drives them on. Any
/// number of them may work on one store: the claims see to it that nothing is done twice.
///
/// ```no_run
/// # use justonce_core::Engine;
/// # use justonce_saga::{Completer, CompleterSettings, Saga};
/// # fn example(engine: &Engine, orders: &Saga<u64>) -> Result<(), Box<dyn std::error::Error>> {
/// let completer = Completer::new(engine, CompleterSettings::default()).with(orders.clone())?;
/// let completing = completer.start(|round| {
///     round.troubles.iter().for_each(|trouble| eprintln!("completer: {trouble}"));
/// });
/// // It works until `completing` is dropped.
/// # drop(completing);
/// # Ok(())
/// # }
/// ```
pub struct Completer {
    engine: Engine,
    settings: CompleterSettings,
    entropy: Arc<Entropy>,
    kinds: Vec<Kind>,
    known: Mutex<Known>,
    /// One round at a time.
    pool: tokio::sync::Mutex<Pool>,
}

/// What one round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Records that were looked at.
    pub seen: usize,
    /// Operations that have ended.
    pub ended: usize,
    /// Operations that must be tried again.
    pub not_yet: usize,
    /// Operations that another owner has, or that ended meanwhile.
    pub left: usize,
    /// How many operations this node knows to be parked, newly or for long: they do not go on
    /// before a retry.
    pub parked: usize,
    /// The records of those that were parked in this round.
    pub newly_parked: Vec<RecordId>,
    /// What went wrong: with a record, or with a whole kind.
    pub troubles: Vec<String>,
}

impl Completer {
    /// A completer that knows no kind of operation yet.
    #[must_use]
    pub fn new(engine: &Engine, settings: CompleterSettings) -> Self {
        Self {
            engine: engine.clone(),
            settings,
            entropy: Arc::new(Entropy::from_system()),
            kinds: Vec::new(),
            known: Mutex::default(),
            pool: tokio::sync::Mutex::default(),
        }
    }

    /// The source of randomness, for the pauses. Default: seeded by the system.
    #[must_use]
    pub fn entropy(mut self, entropy: Entropy) -> Self {
        self.entropy = Arc::new(entropy);
        self
    }

    /// One more kind of operations, for example a [`Saga`](crate::Saga).
    ///
    /// # Errors
    ///
    /// If its name cannot be the operation of a scope.
    pub fn with(mut self, driver: impl Driver) -> Result<Self, ScopeError> {
        let kind = Kind::new(self.kinds.len(), driver, &self.entropy)?;
        self.kinds.push(kind);
        Ok(self)
    }

    /// Operations of phases whose scope has this operation and whose input was stored with the
    /// claim, by [`Phases::asked`].
    ///
    /// # Errors
    ///
    /// If the name cannot be the operation of a scope.
    pub fn with_phases<H, F>(
        self,
        operation: impl Into<String>,
        phases: &Phases,
        handler: H,
    ) -> Result<Self, ScopeError>
    where
        H: Fn(PhaseRun) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Outcome, HandlerError>> + Send + 'static,
    {
        self.with(PhasesDriver::new(operation.into(), phases.clone(), handler))
    }

    /// Works in the background until the returned worker is stopped or dropped, and hands over what
    /// each round did, to log its troubles. What it was driving stays as it is saved.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(self, observe: impl Fn(Round) + Send + 'static) -> Worker {
        let entropy = Arc::clone(&self.entropy);
        let schedule = self.engine.schedule("completer", self.settings.every);
        let schedule = schedule.jitter(move || entropy.next_u32());
        Worker::start(schedule, Observed { completer: self, observe })
    }

    /// One round: finds operations without a driver, a page of each kind, and drives them on.
    /// Errors are reported and left for the next round.
    ///
    /// It waits for what it drives, but no longer than the pause between two rounds: what takes
    /// longer goes on in the background, until the completer is dropped, and a later round tells
    /// what became of it.
    pub async fn round(&self) -> Round {
        let mut pool = self.pool.lock().await;
        let (mut round, mut found) = (Round::default(), Vec::new());
        for kind in &self.kinds {
            // As much as one round takes up is waiting for a place: there is no need for more.
            // Those that failed before do not keep fresh ones from being found.
            let enough = self.settings.page.max(1);
            if pool.waiting(kind.number) >= enough {
                continue;
            }
            let search = Search {
                engine: &self.engine,
                settings: &self.settings,
                known: &self.known,
                is_again_wanted: pool.waiting_again(kind.number) < enough,
            };
            for state in STATES {
                if state != StateName::InProgress && !kind.driver.retries() {
                    continue;
                }
                found.push(search.run(kind, state, &mut round).await);
            }
        }
        pool.take_up(fairly(found));
        pool.drive(&self.engine, &self.settings, &mut round).await;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        round.parked = known.parked();
        drop(known);
        round
    }
}

/// A completer whose rounds are observed.
struct Observed<F> {
    completer: Completer,
    observe: F,
}

impl<F: Fn(Round) + Send + 'static> Rounds for Observed<F> {
    type Error = Infallible;

    async fn round(&mut self) -> Result<Next, Infallible> {
        let round = self.completer.round().await;
        (self.observe)(round);
        Ok(Next::Pause)
    }
}

/// One of each kind in turn, so that a kind with many does not keep the others waiting.
fn fairly<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    while !lists.is_empty() {
        lists.retain_mut(|list| list.next().map(|item| all.push(item)).is_some());
    }
    all
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
