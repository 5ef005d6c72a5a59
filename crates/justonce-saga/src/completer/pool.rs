//! Driving a bounded number of operations at once, without waiting for the slowest.

use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use justonce_core::{Engine, Operation, RecordId};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::driver::{DriveEnd, Driver};
use super::round::Round;
use super::settings::CompleterSettings;

/// An operation that is to be driven on, or parked.
pub(super) struct Found {
    pub(super) kind: usize,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) id: RecordId,
    pub(super) operation: Operation,
    /// Whether drives of it have failed before.
    pub(super) is_again: bool,
    /// Whether too many have.
    pub(super) is_parked: bool,
}

/// What is driven, and what waits for a place. It ends with this.
#[derive(Default)]
pub(super) struct Pool {
    fresh: VecDeque<Found>,
    again: VecDeque<Found>,
    driving: JoinSet<EndedDrive>,
    /// How many of those that are driven have failed before.
    driven_again: usize,
    /// All of them, so that nothing is taken up twice.
    ids: HashSet<RecordId>,
    /// Counts the rounds.
    round: u64,
    /// How many are driven that this round has begun.
    current: usize,
}

/// How a drive ended.
struct EndedDrive {
    id: RecordId,
    is_again: bool,
    round: u64,
    drove: DriveEnd,
}

impl Pool {
    /// How many fresh ones of a kind wait for a place.
    pub(super) fn waiting(&self, kind: usize) -> usize {
        self.fresh.iter().filter(|found| found.kind == kind).count()
    }

    /// How many of a kind wait for a place that failed before.
    pub(super) fn waiting_again(&self, kind: usize) -> usize {
        self.again.iter().filter(|found| found.kind == kind).count()
    }

    /// Takes operations up, unless they are already.
    pub(super) fn take_up(&mut self, found: impl IntoIterator<Item = Found>) {
        for found in found {
            if self.ids.insert(found.id) {
                let queue = if found.is_again { &mut self.again } else { &mut self.fresh };
                queue.push_back(found);
            }
        }
    }

    /// Drives operations on until all that this round began have ended, or its time is over. What
    /// takes longer goes on.
    pub(super) async fn drive(
        &mut self,
        engine: &Engine,
        settings: &CompleterSettings,
        round: &mut Round,
    ) {
        let until = Instant::now() + settings.every;
        self.round += 1;
        self.current = 0;
        while let Some(ended) = self.driving.try_join_next() {
            self.ended(ended.ok(), round);
        }
        loop {
            self.fill(engine, settings);
            if self.current == 0 && self.fresh.is_empty() && self.again.is_empty() {
                return;
            }
            tokio::select! {
                Some(ended) = self.driving.join_next() => self.ended(ended.ok(), round),
                () = sleep_until(until) => return,
            }
        }
    }

    /// Begins as many as there are places for: the fresh ones first, and not so many of the others
    /// that fresh ones find no place.
    fn fill(&mut self, engine: &Engine, settings: &CompleterSettings) {
        let places = settings.at_once.max(1);
        while self.driving.len() < places {
            let found = match self.fresh.pop_front() {
                Some(fresh) => Some(fresh),
                None if self.driven_again < (places / 2).max(1) => self.again.pop_front(),
                None => None,
            };
            let Some(found) = found else { return };
            self.driven_again += usize::from(found.is_again);
            self.current += 1;
            self.begin(found, engine.clone(), *settings);
        }
    }

    fn begin(&mut self, found: Found, engine: Engine, settings: CompleterSettings) {
        let Found { driver, id, operation, is_again, is_parked, .. } = found;
        let round = self.round;
        let driving = async move {
            if is_parked {
                driver.park(&engine, operation, settings.park_after).await
            } else {
                driver.drive(&engine, operation).await
            }
        };
        self.driving.spawn(async move {
            let limit = settings.drive_timeout;
            let driving = async move {
                timeout(limit, driving).await.unwrap_or_else(|_| {
                    DriveEnd::Trouble(format!("it did not end within {limit:?} and was given up"))
                })
            };
            // A step that panics, also where it is dropped, has given its operation up; the others
            // go on.
            let drove = AssertUnwindSafe(driving).catch_unwind().await;
            let drove = drove.unwrap_or_else(|_| DriveEnd::Trouble("it panicked".into()));
            EndedDrive { id, is_again, round, drove }
        });
    }

    /// Counts how a drive ended. There is nothing to count if its runtime has ended.
    fn ended(&mut self, ended: Option<EndedDrive>, round: &mut Round) {
        let Some(EndedDrive { id, is_again, round: of, drove }) = ended else { return };
        self.ids.remove(&id);
        self.driven_again -= usize::from(is_again);
        self.current -= usize::from(of == self.round);
        match drove {
            DriveEnd::Ended => round.ended += 1,
            DriveEnd::NotYet => round.not_yet += 1,
            DriveEnd::Left => round.left += 1,
            DriveEnd::Parked(why) => {
                round.newly_parked.push(id);
                round.troubles.push(format!("{id}: it is parked until it is retried: {why}"));
            }
            DriveEnd::Trouble(why) => round.troubles.push(format!("{id}: {why}")),
        }
    }
}
