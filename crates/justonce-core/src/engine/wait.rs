//! Duplicates that wait for a running operation: woken by the store, bounded in time and number.

use std::time::Duration;

use tokio::time::Instant;

use super::builder::Engine;
use super::ran::RunError;
use crate::operation::{OnConcurrent, Operation};
use crate::protocol::{Busy, BusyWhy, Existing};

/// A lease that was about to lapse when it was read may have been renewed since: looking again a
/// moment later tells. This is that moment.
const LAPSE_SLACK: Duration = Duration::from_millis(1);

/// How long a duplicate is still willing to wait.
pub(super) struct WaitLimit {
    max: Duration,
    until: Option<Instant>,
}

/// How a wait ended.
pub(super) enum Waited {
    /// This became of the operation.
    Settled(Existing),
    /// Something changed: look again.
    Changed,
    /// There is no more time, or there are too many waiting.
    GiveUp,
}

impl WaitLimit {
    pub(super) const fn new(rule: OnConcurrent) -> Self {
        let max = match rule {
            OnConcurrent::Reject => Duration::ZERO,
            OnConcurrent::Wait(max) | OnConcurrent::Cooperate(max) => max,
        };
        Self { max, until: None }
    }

    /// The time left, counted from the first wait.
    fn left(&mut self) -> Duration {
        if self.max.is_zero() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        self.until.get_or_insert(now + self.max).saturating_duration_since(now)
    }
}

impl Engine {
    /// Waits until the claim ends, its lease lapses, or the limit is reached.
    pub(super) async fn wait(
        &self,
        operation: &Operation,
        busy: Busy,
        limit: &mut WaitLimit,
    ) -> Result<Waited, RunError> {
        let left = limit.left();
        if left.is_zero() || (busy.why == BusyWhy::BackOff && busy.left > left) {
            return Ok(Waited::GiveUp);
        }
        let Ok(_place) = self.inner.waiters.try_acquire() else {
            return Ok(Waited::GiveUp);
        };
        let time = tokio::time::sleep(left.min(busy.left + LAPSE_SLACK));
        let id = operation.id();
        match busy.why {
            BusyWhy::BackOff => time.await,
            BusyWhy::Running => tokio::select! {
                biased;
                ended = self.inner.store.settled(&id, busy.fence) => {
                    // The store may know what the claim ended with: then nobody asks again.
                    if let Some(ended) = ended? {
                        return Ok(Waited::Settled(ended.existing(&operation.fingerprint())));
                    }
                }
                () = time => {}
            },
        }
        Ok(Waited::Changed)
    }

    /// Waits for the outcome without ever executing.
    pub(super) async fn await_outcome(
        &self,
        operation: &Operation,
        mut busy: Busy,
        mut limit: WaitLimit,
    ) -> Result<Existing, RunError> {
        loop {
            match self.peek(operation).await? {
                Some(Existing::Busy(still)) => busy = still,
                Some(existing) => return Ok(existing),
                None => {
                    return Ok(Existing::Busy(Busy { left: Duration::ZERO, ..busy }));
                }
            }
            loop {
                match self.wait(operation, busy, &mut limit).await? {
                    Waited::GiveUp => return Ok(Existing::Busy(busy)),
                    // It failed, and its back-off is waited for.
                    Waited::Settled(Existing::Busy(still)) => busy = still,
                    Waited::Settled(existing) => return Ok(existing),
                    Waited::Changed => break,
                }
            }
        }
    }
}
