//! When the rounds of a worker run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::health::WorkerObserver;
use crate::clock::Timestamp;
use crate::policy::BackOff;

/// When the rounds of a worker run, and who observes them.
///
/// ```
/// use justonce_core::worker::Schedule;
/// use justonce_core::{BackOff, Entropy};
/// use std::time::Duration;
///
/// // The default: every ten seconds, also after failures.
/// let plain = Schedule::every("sweep", Duration::from_secs(10));
///
/// // Customised: jitter, and longer pauses while it keeps failing.
/// let entropy = Entropy::from_system();
/// let careful = Schedule::every("sweep", Duration::from_secs(10))
///     .between(Duration::from_millis(5))
///     .back_off(BackOff { first: Duration::from_secs(10), max: Duration::from_secs(60) })
///     .jitter(move || entropy.next_u32());
/// ```
pub struct Schedule {
    pub(super) name: &'static str,
    every: Duration,
    between: Duration,
    back_off: BackOff,
    jitter: Option<Box<dyn FnMut() -> u32 + Send>>,
    pub(super) observer: Option<Arc<dyn WorkerObserver>>,
}

impl Schedule {
    /// A round at once, and then one after each pause. The name is for health and metrics.
    #[must_use]
    pub const fn every(name: &'static str, pause: Duration) -> Self {
        Self {
            name,
            every: pause,
            between: Duration::ZERO,
            back_off: BackOff { first: pause, max: pause },
            jitter: None,
            observer: None,
        }
    }

    /// The pause after a round that left more to do. Default: none.
    #[must_use]
    pub const fn between(mut self, pause: Duration) -> Self {
        self.between = pause;
        self
    }

    /// The pauses after rounds that failed one after the other. Default: as after any round.
    #[must_use]
    pub const fn back_off(mut self, back_off: BackOff) -> Self {
        self.back_off = back_off;
        self
    }

    /// Draws each pause between half of it and all of it, by uniform random numbers: nodes that
    /// started together do not stay together. Default: no jitter.
    #[must_use]
    pub fn jitter(mut self, draw: impl FnMut() -> u32 + Send + 'static) -> Self {
        self.jitter = Some(Box::new(draw));
        self
    }

    /// Gets the end of every round, to count or log it. Default: none.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn WorkerObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    pub(super) const fn pause_within_work(&self) -> Duration {
        self.between
    }

    pub(super) fn pause(&mut self) -> Duration {
        self.drawn(BackOff { first: self.every, max: self.every }, 1)
    }

    pub(super) fn pause_after_failure(&mut self, failures: u32) -> Duration {
        self.drawn(self.back_off, failures)
    }

    fn drawn(&mut self, pauses: BackOff, failures: u32) -> Duration {
        let jitter = self.jitter.as_mut().map_or(u32::MAX, |draw| draw());
        pauses.until(Timestamp::ZERO, failures, jitter).since(Timestamp::ZERO)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("name", &self.name)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
