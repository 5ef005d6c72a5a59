//! How a worker is doing.

use std::time::Duration;

use tokio::time::Instant;

/// How a worker is doing now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerHealth {
    /// How many rounds have ended.
    pub rounds: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How many have failed since the last one that did not.
    pub consecutive_failures: u32,
    /// How long ago the last round ended; nothing before the first one has.
    pub last_run: Option<Duration>,
    /// For how long the present round has been running; nothing in a pause.
    pub running_for: Option<Duration>,
    /// Why the last round failed that did. It stays when later rounds succeed.
    pub last_error: Option<String>,
}

/// The end of a round.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RoundEnd<'a> {
    /// The name of the worker.
    pub worker: &'static str,
    /// How long the round took.
    pub elapsed: Duration,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
    /// How many have failed since the last one that did not, with this one.
    pub consecutive_failures: u32,
}

/// Gets the end of every round of a worker, for metrics and logs.
pub trait WorkerObserver: Send + Sync + 'static {
    /// A round ended.
    fn round_ended(&self, end: &RoundEnd<'_>);
}

/// What is kept of the rounds so far.
#[derive(Debug, Default)]
pub(super) struct History {
    health: WorkerHealth,
    last_end: Option<Instant>,
    running_since: Option<Instant>,
}

impl History {
    pub(super) fn begin(&mut self) {
        self.running_since = Some(Instant::now());
    }

    /// Counts a round, and returns how long it took and how many have failed in a row.
    pub(super) fn end(&mut self, error: Option<&str>) -> (Duration, u32) {
        let began = self.running_since.take();
        self.last_end = Some(Instant::now());
        let health = &mut self.health;
        health.rounds += 1;
        if let Some(error) = error {
            health.failures += 1;
            health.consecutive_failures = health.consecutive_failures.saturating_add(1);
            health.last_error = Some(error.to_owned());
        } else {
            health.consecutive_failures = 0;
        }
        (began.map(|began| began.elapsed()).unwrap_or_default(), health.consecutive_failures)
    }

    pub(super) fn health(&self) -> WorkerHealth {
        let elapsed = |since: Option<Instant>| since.map(|since| since.elapsed());
        WorkerHealth {
            last_run: elapsed(self.last_end),
            running_for: elapsed(self.running_since),
            ..self.health.clone()
        }
    }
}
