//! The decorator.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use super::claims::{Claim, Claims};
use super::near::NearCache;
use super::port::{CacheEvent, CacheObserver, CachedOutcome, Lookup, OutcomeCache, PutPermit};
use crate::claim::Fence;
use crate::clock::{Clock, TimerClock, Timestamp};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::fingerprint::Fingerprint;
use crate::outcome::Outcome;
use crate::protocol::{Action, Answer, ClaimEnd, Claimed, Existing, Step, SweepDone};
use crate::record_id::RecordId;
use crate::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};

/// How long a call waits for the cache, by default, before it goes on without: far longer than a
/// cache that works needs, far shorter than what a caller notices.
pub const CACHE_WAIT: Duration = Duration::from_millis(50);

/// How long a cache is skipped after it failed: long enough that a dead one costs next to
/// nothing, short enough that one that came back is soon of use.
pub const CACHE_PAUSE: Duration = Duration::from_secs(1);

/// The mark of a cache that works.
const WORKS: u64 = 0;

/// Three clocks that count whole milliseconds, the store's, the cache's and ours, together are
/// wrong about a duration by less than this.
const ROUNDING: Duration = Duration::from_millis(3);

/// A store with a cache in front. The store decides; duplicates of operations that are completed
/// or failed for good are answered by the cache, with the answer that the store would give.
///
/// The cache learns what the store answers: the outcome of a settled operation to a begin or a
/// peek, and the outcomes of operations that are begun and completed through here. It is asked
/// before each begin and peek; a cache that fails, or does not answer within [`CACHE_WAIT`], is
/// skipped for [`CACHE_PAUSE`], and the store answers alone.
///
/// ```
/// # use justonce_core::{ManualClock, memory::MemoryStore};
/// use justonce_core::store::{Cached, NearCache};
/// use std::time::Duration;
///
/// # let store = || MemoryStore::new(ManualClock::default());
/// // The default: a near cache of 32 MiB whose answers are at most five seconds old.
/// let near = Cached::near(store());
/// // Customised: a larger one, and a handle on it for its figures.
/// let cache = NearCache::builder().bytes(1 << 30).age(Duration::from_secs(60)).build();
/// let large = Cached::new(store(), cache.clone());
/// assert_eq!(cache.stats().hits, 0);
/// ```
pub struct Cached<S, C> {
    inner: S,
    cache: C,
    claims: Claims,
    health: Health,
    wait: Duration,
    clock: Box<dyn Clock>,
    /// How far durations by our clock and by the store's may be apart.
    rounding: Duration,
    observer: Option<Arc<dyn CacheObserver>>,
}

impl<S> Cached<S, NearCache> {
    /// A store with a near cache of the default size and age.
    pub fn near(inner: S) -> Self {
        Self::new(inner, NearCache::default())
    }
}

impl<S, C> Cached<S, C> {
    /// Decorates a store.
    pub fn new(inner: S, cache: C) -> Self {
        Self {
            inner,
            cache,
            claims: Claims::default(),
            health: Health::default(),
            wait: CACHE_WAIT,
            clock: Box::new(TimerClock::starting_at(Timestamp::ZERO)),
            rounding: ROUNDING,
            observer: None,
        }
    }

    /// How long a call waits for the cache. Default: [`CACHE_WAIT`].
    #[must_use]
    pub const fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    /// Observes what the cache does. Default: no observer.
    #[must_use]
    pub fn observer(mut self, observer: impl CacheObserver) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The clock of the store and of the cache, for tests: time left is then told to the
    /// millisecond. Default: tokio's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self.rounding = Duration::ZERO;
        self
    }

    /// The store.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// The cache.
    pub const fn cache(&self) -> &C {
        &self.cache
    }

    fn tell(&self, event: CacheEvent<'_>) {
        if let Some(observer) = &self.observer {
            observer.seen(event);
        }
    }
}

impl<S: Records, C: OutcomeCache> Cached<S, C> {
    /// Drops what the cache has of a record, after it was changed in a way that is no step of the
    /// protocol: by hand, in the store itself. Change the record first, then call this. The steps
    /// `Expire`, `Erase` and `Resolve` do it by themselves.
    ///
    /// If the cache cannot be reached, what it has is answered until its age is over.
    pub async fn forget(&self, id: &RecordId) {
        // Tried also right after a failure: the cache may work again, and this matters. The
        // observer has seen a failure, and nothing more can be done.
        let _ = self.call(self.cache.forget(id)).await;
    }

    /// Begin and peek.
    async fn ask(&self, step: &Step, asked: &Fingerprint) -> StoreResult<Answer> {
        let (permit, has_other) = match self.look(&step.id, asked).await {
            Some(Lookup::Found(kept)) => return Ok(kept.answer()),
            Some(Lookup::Other(permit)) => (Some(permit), true),
            Some(Lookup::Nothing(permit)) => (Some(permit), false),
            None => (None, false),
        };
        let before = self.clock.now();
        let answer = self.inner.apply(step).await?;
        let Some(permit) = permit else {
            return Ok(answer);
        };
        match (CachedOutcome::of(*asked, &answer), &answer, &step.action) {
            (Some(kept), ..) => self.keep(&step.id, kept, permit).await,
            (_, Answer::Existing(Existing::Mismatch), _) => {}
            (_, Answer::Claimed(claimed), Action::Begin(begin)) => {
                let retention = begin.policy.retention();
                self.remember(step.id, claimed, *asked, retention, permit, before);
                if has_other {
                    self.forget(&step.id).await;
                }
            }
            // What is kept for another fingerprint is not what the store has.
            _ if has_other => self.forget(&step.id).await,
            _ => {}
        }
        Ok(answer)
    }

    fn remember(
        &self,
        id: RecordId,
        claimed: &Claimed,
        fingerprint: Fingerprint,
        retention: Duration,
        permit: PutPermit,
        before: Timestamp,
    ) {
        let claim = Claim {
            fence: claimed.fence,
            fingerprint,
            retention,
            permit,
            permit_at: before,
            alive_until: before.after(claimed.lease),
        };
        self.claims.remember(id, claim, before);
    }

    /// A complete that was applied while the lease was certainly alive has settled the operation
    /// itself: no other owner could, and its retention began after `before`.
    async fn complete(&self, step: &Step, fence: Fence, outcome: &Outcome) -> StoreResult<Answer> {
        let claim = self.claims.take(&step.id, fence);
        let before = self.clock.now();
        let answer = self.inner.apply(step).await?;
        if let (Answer::Applied, Some(claim)) = (&answer, claim)
            && self.clock.now().after(self.rounding) < claim.alive_until
        {
            let Claim { fingerprint, retention: left, .. } = claim;
            let kept = CachedOutcome { fingerprint, outcome: outcome.clone(), failed: false, left };
            let permit = claim.permit.later(before.since(claim.permit_at));
            self.keep(&step.id, kept, permit).await;
        }
        Ok(answer)
    }

    async fn renew(&self, step: &Step, fence: Fence) -> StoreResult<Answer> {
        let before = self.clock.now();
        let answer = self.inner.apply(step).await?;
        if let Answer::Renewed(left) = answer {
            self.claims.renewed(&step.id, fence, before.after(left));
        }
        Ok(answer)
    }

    /// Asks the cache, if it is worth asking.
    async fn look(&self, id: &RecordId, asked: &Fingerprint) -> Option<Lookup> {
        if !self.health.admits(&*self.clock) {
            self.tell(CacheEvent::Skipped);
            return None;
        }
        let looked = self.call(self.cache.get(id, asked)).await?;
        self.tell(match looked {
            Lookup::Found(_) => CacheEvent::Hit,
            _ => CacheEvent::Missed,
        });
        Some(looked)
    }

    /// Tells the cache, unless it failed since it was asked.
    async fn keep(&self, id: &RecordId, kept: CachedOutcome, permit: PutPermit) {
        let left = kept.left.saturating_sub(self.rounding);
        if !left.is_zero() && self.health.works() {
            // The observer has seen a failure: then the next duplicate asks the store.
            let _ = self.call(self.cache.put(id, &CachedOutcome { left, ..kept }, permit)).await;
        }
    }

    /// Calls the cache, for a bounded time. Nothing if it failed.
    async fn call<T>(&self, call: impl Future<Output = StoreResult<T>>) -> Option<T> {
        match within(self.wait, call).await {
            Ok(value) => {
                self.health.succeeded();
                Some(value)
            }
            Err(error) => {
                self.health.failed(&*self.clock);
                self.tell(CacheEvent::Failed(&error));
                None
            }
        }
    }
}

/// Waits for a call at most so long. A call that is ready at once, as those of a near cache are,
/// needs no timer.
async fn within<T>(limit: Duration, call: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    let mut call = pin!(call);
    let at_once = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    if let Poll::Ready(result) = at_once {
        return result;
    }
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        let message = format!("the cache did not answer within {limit:?}");
        Err(StoreError::maybe_applied(StoreErrorKind::TimedOut, message))
    })
}

impl<S: Records, C: OutcomeCache> Records for Cached<S, C> {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        match &step.action {
            Action::Begin(begin) => self.ask(step, &begin.fingerprint).await,
            Action::Peek(asked) => self.ask(step, asked).await,
            Action::Complete(fence, outcome) => self.complete(step, *fence, outcome).await,
            Action::Renew(fence) => self.renew(step, *fence).await,
            Action::Checkpoint(..) => self.inner.apply(step).await,
            Action::Fail(fence, _) | Action::Release(fence) | Action::Abandon(fence, _) => {
                self.claims.take(&step.id, *fence);
                self.inner.apply(step).await
            }
            Action::Resolve(..) | Action::Expire(_) | Action::Erase(_) | Action::Sweep => {
                let answer = self.inner.apply(step).await;
                if !matches!(answer, Ok(Answer::Swept(SweepDone::Kept))) {
                    self.forget(&step.id).await;
                }
                answer
            }
        }
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.inner.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

/// What time ends, it ends in the cache too, so a sweep need not say which records it touched.
impl<S: Maintenance, C: OutcomeCache> Maintenance for Cached<S, C> {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.inner.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.inner.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.inner.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn health(&self) -> StoreResult<crate::store::Health> {
        self.inner.health().await
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for Cached<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("inner", &self.inner)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// When a cache that failed may be tried again.
#[derive(Debug, Default)]
struct Health {
    again_at: AtomicU64,
}

impl Health {
    /// Whether the cache may be asked. Of all who come after the pause one tries for the others.
    fn admits(&self, clock: &dyn Clock) -> bool {
        let again_at = self.again_at.load(Ordering::Relaxed);
        if again_at == WORKS {
            return true;
        }
        let now = clock.now();
        let next = paused_until(now);
        let relaxed = Ordering::Relaxed;
        now.as_millis() >= again_at
            && self.again_at.compare_exchange(again_at, next, relaxed, relaxed).is_ok()
    }

    /// Whether the last call succeeded.
    fn works(&self) -> bool {
        self.again_at.load(Ordering::Relaxed) == WORKS
    }

    /// A call succeeded.
    fn succeeded(&self) {
        // The common case writes nothing that other cores would have to hear of.
        if !self.works() {
            self.again_at.store(WORKS, Ordering::Relaxed);
        }
    }

    /// A call failed.
    fn failed(&self, clock: &dyn Clock) {
        self.again_at.store(paused_until(clock.now()), Ordering::Relaxed);
    }
}

fn paused_until(now: Timestamp) -> u64 {
    now.after(CACHE_PAUSE).as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn after_a_failure_one_tries_for_all() {
        let (health, clock) = (Health::default(), ManualClock::default());
        assert!(health.admits(&clock) && health.admits(&clock));
        health.failed(&clock);
        assert!(!health.admits(&clock), "it has just failed");
        clock.advance(CACHE_PAUSE);
        assert!(health.admits(&clock), "the pause is over");
        assert!(!health.admits(&clock), "one call is trying");
        health.succeeded();
        assert!(health.admits(&clock) && health.admits(&clock));
    }

    #[test]
    fn a_try_that_is_never_heard_of_again_is_followed_by_another() {
        let (health, clock) = (Health::default(), ManualClock::default());
        health.failed(&clock);
        clock.advance(CACHE_PAUSE);
        assert!(health.admits(&clock));
        clock.advance(CACHE_PAUSE);
        assert!(health.admits(&clock) && !health.works());
    }
}
