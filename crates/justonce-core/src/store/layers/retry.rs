//! Tries store calls again when that is safe.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::Fence;
use crate::entropy::Entropy;
use crate::error::{Effect, StoreError, StoreResult};
use crate::protocol::{Answer, ClaimEnd, Step};
use crate::record_id::RecordId;
use crate::store::{Health, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};

/// How often and how long to try again.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// All tries together, the first included.
    pub tries: u32,
    /// The pause before the second try; it doubles, with jitter.
    pub first_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: 4,
            first_pause: Duration::from_millis(20),
            max_pause: Duration::from_millis(500),
        }
    }
}

/// A store that tries passing errors again: only steps that certainly were not applied, or that
/// are safe to repeat (a begin by its token, a write by its fence). A begin of which an earlier try
/// was not answered is marked ([`Step::put_in_doubt`]): the engine looks whether the store carried
/// that one out later.
///
/// ```
/// # use justonce_core::{Entropy, ManualClock, memory::MemoryStore};
/// # use justonce_core::store::{Retry, RetryPolicy};
/// # use std::sync::Arc;
/// # let inner = MemoryStore::new(ManualClock::default());
/// let patient = RetryPolicy { tries: 10, ..RetryPolicy::default() };
/// let store = Retry::new(inner, patient, Arc::new(Entropy::from_system()));
/// ```
#[derive(Debug)]
pub struct Retry<S> {
    inner: S,
    policy: RetryPolicy,
    entropy: Arc<Entropy>,
}

impl<S> Retry<S> {
    /// Decorates a store.
    #[must_use]
    pub const fn new(inner: S, policy: RetryPolicy, entropy: Arc<Entropy>) -> Self {
        Self { inner, policy, entropy }
    }

    async fn again<T, F>(&self, repeatable: bool, mut call: impl FnMut() -> F) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let mut pause = self.policy.first_pause;
        let mut unsure = false;
        for _ in 1..self.policy.tries {
            match call().await {
                Err(error) if may_repeat(&error, repeatable) => {
                    unsure |= error.effect() == Effect::MayHaveBeenApplied;
                }
                result => return judged(result, unsure),
            }
            let jitter = f64::from(self.entropy.next_u32()) / f64::from(u32::MAX);
            tokio::time::sleep(pause.mul_f64(0.5 + jitter / 2.0)).await;
            pause = (pause * 2).min(self.policy.max_pause);
        }
        judged(call().await, unsure)
    }
}

/// What the last try says of all of them: if an earlier one may have been applied, a later one that
/// certainly was not does not change that.
fn judged<T>(last: StoreResult<T>, unsure: bool) -> StoreResult<T> {
    last.map_err(|error| {
        if unsure && error.effect() == Effect::NotApplied {
            let message = "an earlier try was not answered, and the last one failed";
            return StoreError::maybe_applied(error.kind(), message).because(error);
        }
        error
    })
}

fn may_repeat(error: &StoreError, repeatable: bool) -> bool {
    error.is_passing() && (repeatable || error.effect() == Effect::NotApplied)
}

impl<S: Records> Records for Retry<S> {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.again(step.action.is_repeatable(), async || {
            let result = self.inner.apply(step).await;
            if result.as_ref().is_err_and(|error| error.effect() == Effect::MayHaveBeenApplied) {
                step.put_in_doubt();
            }
            result
        })
        .await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.again(true, || self.inner.get(id)).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.again(true, || self.inner.settled(id, fence)).await
    }
}

impl<S: Maintenance> Maintenance for Retry<S> {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.again(true, || self.inner.list(query)).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.again(true, || self.inner.stats()).await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.again(true, || self.inner.sweep(limit)).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn health(&self) -> StoreResult<Health> {
        self.inner.health().await
    }
}
