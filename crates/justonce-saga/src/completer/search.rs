//! Search for what is to be driven on: bounded work, however much there is to pass by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use justonce_core::store::{Cursor, ListQuery, Stored, Summary};
use justonce_core::{Engine, Entropy, RecordId, Scope, ScopeError, StateName};
use tokio::time::Instant;

use super::driver::Driver;
use super::known::{Known, Lap};
use super::pool::Found;
use super::round::Round;
use super::settings::CompleterSettings;
use super::stuck::resumable;
use crate::saved::STUCK;

/// How many pages of the store one round looks at for each kind and state, if there is nothing on
/// them: a store looks at a bounded number of records for each, and most are not of the kind.
const MAX_PAGES: usize = 20;
/// How many records of each kind and state one round passes by: stuck and parked ones are only
/// listed, so that thousands of them delay fresh ones by a round or two.
const MAX_PASSED: usize = 2000;
/// How many records are listed at once.
const PORTION: usize = 250;
/// How many records are read at once.
const READ_AT_ONCE: usize = 16;
/// The longest pause between two drives of the same operation, unless the first is longer.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// How long until it is reported again that a record cannot be driven by this release.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// One kind of operations, and how far this node has come with it.
pub(super) struct Kind {
    pub(super) number: usize,
    pub(super) driver: Arc<dyn Driver>,
    scope: Scope,
    positions: Mutex<HashMap<StateName, Position>>,
}

/// How far a node has come, and in which lap.
#[derive(Clone, Copy)]
struct Position {
    after: Option<Cursor>,
    lap: u64,
}

impl Kind {
    pub(super) fn new(
        number: usize,
        driver: impl Driver,
        entropy: &Entropy,
    ) -> Result<Self, ScopeError> {
        let scope = driver.scope()?;
        // Nodes start at different positions, so that they do not all try the same records first.
        let (high, low) = (entropy.next_u128().to_be_bytes(), [0; 16]);
        let mut start = [0; 32];
        for (to, from) in start.iter_mut().zip(high.iter().rev().chain(&low)) {
            *to = *from;
        }
        let position = Position { after: Some(Cursor(RecordId::from_bytes(start))), lap: 0 };
        let positions = [StateName::InProgress, StateName::Failed].map(|state| (state, position));
        let positions = Mutex::new(HashMap::from(positions));
        Ok(Self { number, driver: Arc::new(driver), scope, positions })
    }

    fn position(&self, state: StateName) -> Position {
        let positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        positions.get(&state).copied().unwrap_or(Position { after: None, lap: 0 })
    }

    fn go_on(&self, state: StateName, position: Position) {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner).insert(state, position);
    }
}

/// Looks for what is to be driven on.
pub(super) struct Search<'a> {
    pub(super) engine: &'a Engine,
    pub(super) settings: &'a CompleterSettings,
    pub(super) known: &'a Mutex<Known>,
    /// Whether there is room for more of those that failed before. If not, they are passed by.
    pub(super) is_again_wanted: bool,
}

impl Search<'_> {
    /// The next operations of one kind in one state: goes on until there are enough of them, or
    /// enough others were passed by.
    pub(super) async fn run(&self, kind: &Kind, state: StateName, round: &mut Round) -> Vec<Found> {
        let position = kind.position(state);
        let lap = Lap { kind: kind.number, state, number: position.lap };
        let enough = self.settings.page.max(1);
        let (mut found, mut after, mut passed) = (Vec::new(), position.after, 0);
        for _ in 0..MAX_PAGES {
            let query = ListQuery {
                state: Some(state),
                scope: Some(kind.scope.clone()),
                unchanged_for: Some(self.settings.unchanged_for),
                limit: PORTION,
                after,
                only: None,
            };
            let page = match self.engine.store().list(&query).await {
                Ok(page) => page,
                Err(error) => {
                    // What was found is driven on all the same; the next round starts from the
                    // beginning, so that it finds what can be listed.
                    round.troubles.push(format!("{}: {error}", kind.driver.name()));
                    kind.go_on(state, Position { after: None, lap: position.lap });
                    return found;
                }
            };
            let mut records = page.records.as_slice();
            while !records.is_empty() && found.len() < enough {
                let (some, rest) = records.split_at(READ_AT_ONCE.min(records.len()));
                found.extend(self.judge(kind, lap, some, round).await);
                records = rest;
                passed += some.len();
                after = some.last().map(|summary| Cursor(summary.id));
            }
            if found.len() >= enough && !records.is_empty() {
                break;
            }
            after = page.next;
            if after.is_none() || found.len() >= enough || passed >= MAX_PASSED {
                break;
            }
        }
        // At the end it starts from the beginning.
        let next = position.lap + u64::from(after.is_none());
        if next != position.lap {
            self.known().forget_before(lap);
        }
        kind.go_on(state, Position { after, lap: next });
        found
    }

    /// What is to be done about some records. Those that are known and not due are not even read.
    async fn judge(
        &self,
        kind: &Kind,
        lap: Lap,
        records: &[Summary],
        round: &mut Round,
    ) -> Vec<Found> {
        let now = Instant::now();
        let mut asked = Vec::new();
        for summary in records {
            round.seen += 1;
            let due = self.known().due(summary, lap);
            match due {
                Some(None) => {}
                Some(Some(due)) if now < due || !self.is_again_wanted => {}
                known => asked.push((summary, known.is_some())),
            }
        }
        let store = self.engine.store();
        let read = asked.iter().map(|(summary, _)| store.get(&summary.id));
        let read = join_all(read).await;
        let mut found = Vec::new();
        for ((summary, is_due), stored) in asked.into_iter().zip(read) {
            match stored {
                Ok(Some(stored)) => {
                    found.extend(self.judge_one(kind, lap, (summary, &stored), is_due, round));
                }
                Ok(None) => self.known().forget(summary.id),
                // One record that cannot be read must not keep the others waiting.
                Err(error) => round.troubles.push(format!("{}: {error}", summary.id)),
            }
        }
        found
    }

    /// What is to be done about a record; `is_due` if its pause is over.
    fn judge_one(
        &self,
        kind: &Kind,
        lap: Lap,
        (summary, stored): (&Summary, &Stored),
        is_due: bool,
        round: &mut Round,
    ) -> Option<Found> {
        let remember = |due, is_parked| self.known().remember(summary, lap, due, is_parked);
        let Some((operation, point)) = resumable(stored) else {
            remember(None, false);
            return None;
        };
        if let Err(why) = kind.driver.fits(point) {
            round.troubles.push(format!("{}: {why}", summary.id));
            remember(Some(Instant::now() + TELL_AGAIN_AFTER), false);
            return None;
        }
        let progress = kind.driver.progress(point);
        if progress.parked.is_some() {
            remember(None, true);
            return None;
        }
        let attempts = stored.entry.record().map_or(0, |record| record.attempt);
        let failed = attempts.saturating_sub(progress.attempt);
        let is_stuck = point.name() == STUCK;
        // What has a limit of its own has pauses of its own as well.
        let is_limited = operation.policy().max_attempts().is_some();
        let is_parked = !is_limited && failed >= self.settings.park_after.max(1);
        let pause = if is_limited { Some(Duration::ZERO) } else { self.pause(failed, is_stuck) };
        let is_again = is_stuck || failed > 1;
        let is_due = match pause {
            _ if is_again && !self.is_again_wanted => false,
            _ if is_parked => {
                // If it cannot be parked, it is not driven all the same, and that is reported
                // again.
                remember(Some(Instant::now() + TELL_AGAIN_AFTER), true);
                true
            }
            None => {
                remember(None, false);
                false
            }
            Some(Duration::ZERO) => true,
            Some(_) if is_due => true,
            Some(pause) => {
                remember(Some(Instant::now() + pause), false);
                false
            }
        };
        is_due.then(|| Found {
            kind: kind.number,
            driver: Arc::clone(&kind.driver),
            id: summary.id,
            operation,
            is_again,
            is_parked,
        })
    }

    /// How long after its last drive an operation is driven again; never, if nothing. Whose first
    /// owner died is driven at once.
    fn pause(&self, failed: u32, is_stuck: bool) -> Option<Duration> {
        let (first, doublings) = match (is_stuck, failed) {
            (true, _) => (self.settings.retry_stuck?, failed.saturating_sub(1)),
            (false, 0 | 1) => return Some(Duration::ZERO),
            (false, _) => (self.settings.every, failed - 2),
        };
        let doubled = first.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX));
        Some(doubled.min(first.max(MAX_PAUSE)))
    }

    /// A panic elsewhere does not matter: what is known is only kept for speed.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
