//! Round by round: look for what nobody drives any more, and drive it on.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use justonce_core::store::{Cursor, ListQuery};
use justonce_core::{
    BackOff, Engine, Entropy, HandlerError, Operation, Outcome, RecordId, Scope, ScopeError,
    StateName, StoreResult, Timestamp,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::driver::{Driver, Drove, PhasesDriver};
use super::find::resumable;
use super::settings::CompleterSettings;
use crate::phases::{PhaseRun, Phases};
use crate::saga::STUCK;

/// How many pages of the store one round looks at for each kind, if there is nothing on them: a
/// store looks at a bounded number of records for each, and most are not of the kind.
const MAX_LOOKS: usize = 20;
/// The most stuck sagas whose last try is remembered; more are tried again too early.
const MAX_REMEMBERED: usize = 10_000;

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
    entropy: Entropy,
    kinds: Vec<Kind>,
    /// When stuck sagas were tried last.
    tried: Mutex<HashMap<RecordId, Instant>>,
}

/// One kind of operations, and how far this node has come with it.
struct Kind {
    driver: Arc<dyn Driver>,
    scope: Scope,
    places: Mutex<HashMap<StateName, Option<Cursor>>>,
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
    /// Operations that somebody else has, or that ended meanwhile.
    pub left: usize,
    /// What went wrong: with a record, or with a whole kind.
    pub troubles: Vec<String>,
}

/// A running completer; it stops when this is dropped. What it was driving stays as it is saved.
#[derive(Debug)]
pub struct Completing(JoinHandle<()>);

impl Drop for Completing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Completer {
    /// A completer that knows no kind of operation yet.
    #[must_use]
    pub fn new(engine: &Engine, settings: CompleterSettings) -> Self {
        Self {
            engine: engine.clone(),
            settings,
            entropy: Entropy::from_system(),
            kinds: Vec::new(),
            tried: Mutex::default(),
        }
    }

    /// The source of randomness, for the pauses. Default: seeded by the system.
    #[must_use]
    pub fn entropy(mut self, entropy: Entropy) -> Self {
        self.entropy = entropy;
        self
    }

    /// One more kind of operations, for example a [`Saga`](crate::Saga).
    ///
    /// # Errors
    ///
    /// If its name cannot be the operation of a scope.
    pub fn with(mut self, driver: impl Driver) -> Result<Self, ScopeError> {
        let scope = driver.scope()?;
        // Nodes start at different places, so that they do not all try the same records first.
        let (high, low) = (self.entropy.next_u128().to_be_bytes(), [0; 16]);
        let mut start = [0; 32];
        for (to, from) in start.iter_mut().zip(high.iter().rev().chain(&low)) {
            *to = *from;
        }
        let place = Some(Cursor(RecordId::from_bytes(start)));
        let places = STATES.map(|state| (state, place));
        let places = Mutex::new(HashMap::from(places));
        self.kinds.push(Kind { driver: Arc::new(driver), scope, places });
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

    /// Works in the background until the returned value is dropped, and tells what each round
    /// did: its troubles are for somebody to read.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use = "the completer stops when it is dropped"]
    pub fn start(self, told: impl Fn(Round) + Send + 'static) -> Completing {
        Completing(tokio::spawn(async move {
            loop {
                let round = self.round().await;
                told(round);
                tokio::time::sleep(self.pause()).await;
            }
        }))
    }

    /// Between half of the pause and all of it.
    fn pause(&self) -> std::time::Duration {
        let pause = BackOff { first: self.settings.every, max: self.settings.every };
        pause.until(Timestamp::ZERO, 1, self.entropy.next_u32()).since(Timestamp::ZERO)
    }

    /// One round: a page of each kind. Errors are told and left for the next round.
    pub async fn round(&self) -> Round {
        let mut round = Round::default();
        let mut found = Vec::new();
        for kind in &self.kinds {
            for state in STATES {
                if state != StateName::InProgress && !kind.driver.retries() {
                    continue;
                }
                match self.look(kind, state, &mut round).await {
                    Ok(operations) => found.push(operations),
                    Err(error) => {
                        round.troubles.push(format!("{}: {error}", kind.driver.name()));
                    }
                }
            }
        }
        self.drive(fairly(found), &mut round).await;
        round
    }

    /// The next page of one kind in one state.
    async fn look<'a>(
        &'a self,
        kind: &'a Kind,
        state: StateName,
        round: &mut Round,
    ) -> StoreResult<Vec<(&'a Kind, RecordId, Operation)>> {
        let store = self.engine.store();
        let mut query = ListQuery {
            state: Some(state),
            scope: Some(kind.scope.clone()),
            unchanged_for: Some(self.settings.unchanged_for),
            limit: self.settings.page,
            after: kind.place(state),
        };
        let mut page = store.list(&query).await?;
        // A page that only passed by others is no reason to wait for the next round.
        for _ in 1..MAX_LOOKS {
            if page.next.is_none() || !page.records.is_empty() {
                break;
            }
            query.after = page.next;
            page = store.list(&query).await?;
        }
        let mut found = Vec::new();
        for summary in page.records {
            round.seen += 1;
            let stored = match store.get(&summary.id).await {
                Ok(stored) => stored,
                // One record that cannot be read must not keep the others waiting.
                Err(error) => {
                    round.troubles.push(format!("{}: {error}", summary.id));
                    continue;
                }
            };
            let Some((operation, point)) = stored.as_ref().and_then(resumable) else { continue };
            if point.name() == STUCK && !self.is_due(summary.id) {
                continue;
            }
            match kind.driver.fits(point) {
                Ok(()) => found.push((kind, summary.id, operation)),
                Err(why) => round.troubles.push(format!("{}: {why}", summary.id)),
            }
        }
        // At the end it starts from the beginning.
        kind.go_on(state, page.next);
        Ok(found)
    }

    /// Drives operations on, a few at once.
    async fn drive(&self, found: Vec<(&Kind, RecordId, Operation)>, round: &mut Round) {
        let mut waiting = found.into_iter();
        let mut driven = FuturesUnordered::new();
        loop {
            while driven.len() < self.settings.at_once.max(1)
                && let Some((kind, id, operation)) = waiting.next()
            {
                let driving = kind.driver.drive(&self.engine, operation);
                // A step that panics has given its operation up; the others go on.
                let driving = AssertUnwindSafe(driving).catch_unwind();
                driven.push(async move { (id, driving.await) });
            }
            let Some((id, drove)) = driven.next().await else { return };
            match drove.unwrap_or_else(|_| Drove::Trouble("it panicked".into())) {
                Drove::Ended => round.ended += 1,
                Drove::NotYet => {
                    round.not_yet += 1;
                    self.remember(id);
                }
                Drove::Left => round.left += 1,
                Drove::Trouble(why) => round.troubles.push(format!("{id}: {why}")),
            }
        }
    }

    /// Whether a stuck saga is to be tried again.
    fn is_due(&self, id: RecordId) -> bool {
        let Some(pause) = self.settings.retry_stuck else { return false };
        let tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.get(&id).is_none_or(|last| last.elapsed() >= pause)
    }

    fn remember(&self, id: RecordId) {
        let pause = self.settings.retry_stuck.unwrap_or_default();
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() >= MAX_REMEMBERED {
            tried.retain(|_, last| last.elapsed() < pause);
        }
        if tried.len() < MAX_REMEMBERED {
            tried.insert(id, Instant::now());
        }
    }
}

impl Kind {
    fn place(&self, state: StateName) -> Option<Cursor> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(&state).copied().flatten()
    }

    fn go_on(&self, state: StateName, next: Option<Cursor>) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert(state, next);
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
