//! Tells an observer about every store call, and about every operation that becomes unknown: the
//! hook for metrics and traces.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Fence, Owner};
use crate::error::{StoreError, StoreResult};
use crate::key::Key;
use crate::protocol::{
    Action, Answer, ClaimEnd, Entry, State, Step, SweepDone, UnknownReason, Why,
};
use crate::record_id::RecordId;
use crate::scope::Scope;
use crate::store::{Health, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};

/// One store call, after it ended.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The name of the step or call.
    pub call: &'static str,
    /// The name of the answer, or the error.
    pub result: Result<&'static str, &'a StoreError>,
    /// How long it took.
    pub elapsed: Duration,
}

/// An operation that a step made unknown. What is missing could not be read from its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BecameUnknown {
    /// The name of its record.
    pub id: RecordId,
    /// Why it is unknown.
    pub reason: UnknownReason,
    /// Whose namespace its key lives in.
    pub scope: Option<Scope>,
    /// Its key.
    pub key: Option<Key>,
    /// Who held the claim.
    pub owner: Option<Owner>,
    /// What the owner saw.
    pub cause: Option<Why>,
}

/// Observes store calls. Called on the hot path: be quick.
pub trait Observer: Send + Sync + 'static {
    /// A call ended.
    fn seen(&self, seen: Seen<'_>);

    /// A step of this store made an operation unknown: an abandon, or a begin or a sweep that found
    /// a lapsed claim. Of all processes that share the store, one gets each operation.
    fn became_unknown(&self, unknown: &BecameUnknown) {
        let _ = unknown;
    }
}

impl<F: Fn(Seen<'_>) + Send + Sync + 'static> Observer for F {
    fn seen(&self, seen: Seen<'_>) {
        self(seen);
    }
}

/// A store that tells an [`Observer`] about every call.
///
/// ```
/// # use justonce_core::{ManualClock, memory::MemoryStore};
/// use justonce_core::store::{Observed, Seen};
///
/// # let inner = MemoryStore::new(ManualClock::default());
/// let store = Observed::new(inner, |seen: Seen<'_>| println!("{} {:?}", seen.call, seen.result));
/// ```
pub struct Observed<S> {
    inner: S,
    observer: Arc<dyn Observer>,
}

impl<S> Observed<S> {
    /// Decorates a store.
    pub fn new(inner: S, observer: impl Observer) -> Self {
        Self { inner, observer: Arc::new(observer) }
    }

    /// Reports that an operation became unknown, with what its record says.
    async fn report_unknown(&self, event: BecameUnknown)
    where
        S: Records,
    {
        // Reported also if the caller leaves while the record is read.
        let mut report = UnknownReport { observer: &*self.observer, event };
        if let Ok(Some(stored)) = self.inner.get(&report.event.id).await {
            report.event.fill(&stored);
        }
    }

    async fn watch<T>(
        &self,
        call: &'static str,
        future: impl Future<Output = StoreResult<T>>,
        name: impl FnOnce(&T) -> &'static str,
    ) -> StoreResult<T> {
        let start = tokio::time::Instant::now();
        let result = future.await;
        let seen = Seen { call, result: result.as_ref().map(name), elapsed: start.elapsed() };
        self.observer.seen(seen);
        result
    }
}

impl BecameUnknown {
    const fn of(id: RecordId, reason: UnknownReason) -> Self {
        Self { id, reason, scope: None, key: None, owner: None, cause: None }
    }

    /// Whether this very step made an operation unknown.
    fn by(step: &Step, answer: &Answer) -> Option<Self> {
        let reason = match answer {
            Answer::Held(unknown) => unknown.reason,
            Answer::Swept(SweepDone::Held) => UnknownReason::Lapsed,
            _ => return None,
        };
        let event = Self::of(step.id, reason);
        Some(match &step.action {
            Action::Begin(begin) => {
                Self { scope: Some(begin.scope.clone()), key: Some(begin.key.clone()), ..event }
            }
            _ => event,
        })
    }

    /// Takes over what a record says. It may have been resolved since: its timeline still tells why
    /// it was unknown.
    fn fill(&mut self, stored: &Stored) {
        let Entry::Record(record) = &stored.entry else { return };
        self.scope = Some(record.subject.scope.clone());
        self.key = Some(record.subject.key.clone());
        let mut notes = stored.timeline.notes().iter().rev();
        if let Some((reason, cause)) = notes.find_map(|note| note.kind.unknown_because()) {
            (self.reason, self.cause) = (reason, cause.cloned());
        }
        if let State::Unknown(unknown) = &record.state {
            self.owner = Some(unknown.owner.clone());
        }
    }
}

/// Reports to the observer when it is dropped.
struct UnknownReport<'a> {
    observer: &'a dyn Observer,
    event: BecameUnknown,
}

impl Drop for UnknownReport<'_> {
    fn drop(&mut self) {
        self.observer.became_unknown(&self.event);
    }
}

impl<S: fmt::Debug> fmt::Debug for Observed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: Records> Records for Observed<S> {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        let answer = self.watch(step.action.name(), self.inner.apply(step), Answer::name).await?;
        if let Some(event) = BecameUnknown::by(step, &answer) {
            self.report_unknown(event).await;
        }
        Ok(answer)
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let name = |found: &Option<Stored>| if found.is_some() { "found" } else { "absent" };
        self.watch("get", self.inner.get(id), name).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.watch("settled", self.inner.settled(id, fence), |_| "settled").await
    }
}

impl<S: Records + Maintenance> Maintenance for Observed<S> {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.watch("list", self.inner.list(query), |_| "page").await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.watch("stats", self.inner.stats(), |_| "stats").await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        let report = self.watch("sweep_all", self.inner.sweep(limit), |_| "swept").await?;
        for id in &report.held {
            self.report_unknown(BecameUnknown::of(*id, UnknownReason::Lapsed)).await;
        }
        Ok(report)
    }

    async fn ready(&self) -> StoreResult<()> {
        self.watch("ready", self.inner.ready(), |()| "ready").await
    }

    async fn health(&self) -> StoreResult<Health> {
        self.watch("health", self.inner.health(), |_| "health").await
    }
}
