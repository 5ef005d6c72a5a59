//! A store in memory with hands on it: every call is logged, can be held up and made to fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justonce_core::memory::MemoryStore;
use justonce_core::store::{
    Fault, ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport,
};
use justonce_core::{
    Answer, ClaimEnd, Fence, RecordId, Step, StoreError, StoreErrorKind, StoreResult,
};
use tokio::sync::watch;

/// A handle on the store as one engine sees it. Clones share everything.
#[derive(Clone)]
pub(crate) struct Probe {
    memory: Arc<MemoryStore>,
    script: Arc<Script>,
}

struct Script {
    faults: Mutex<HashMap<&'static str, Trouble>>,
    /// The calls that are held up before they reach the store.
    held: watch::Sender<Vec<&'static str>>,
    /// The calls that have arrived, in order.
    begun: watch::Sender<Vec<&'static str>>,
    /// The calls that have ended, in order.
    ended: watch::Sender<Vec<&'static str>>,
}

#[derive(Clone, Copy)]
enum Trouble {
    Fault(Fault),
    /// Fails without having been applied, and says this.
    Kind(StoreErrorKind),
}

impl Probe {
    pub(crate) fn new(memory: Arc<MemoryStore>) -> Self {
        let script = Script {
            faults: Mutex::default(),
            held: watch::Sender::default(),
            begun: watch::Sender::default(),
            ended: watch::Sender::default(),
        };
        Self { memory, script: Arc::new(script) }
    }

    /// The same store as another process sees it: with its own faults and its own log.
    pub(crate) fn second(&self) -> Self {
        Self::new(Arc::clone(&self.memory))
    }

    /// All calls of this name meet this fault until [`Probe::heal`].
    pub(crate) fn fail(&self, name: &'static str, fault: Fault) {
        self.faults().insert(name, Trouble::Fault(fault));
    }

    /// All calls of this name fail with an error of this kind, unapplied.
    pub(crate) fn fail_as(&self, name: &'static str, kind: StoreErrorKind) {
        self.faults().insert(name, Trouble::Kind(kind));
    }

    /// No more faults.
    pub(crate) fn heal(&self) {
        self.faults().clear();
    }

    /// Calls of this name do not reach the store until [`Probe::let_go`].
    pub(crate) fn hold(&self, name: &'static str) {
        self.script.held.send_modify(|held| held.push(name));
    }

    /// Nothing is held up any more.
    pub(crate) fn let_go(&self) {
        self.script.held.send_modify(Vec::clear);
    }

    /// Waits until a call of this name has arrived, held up or not.
    pub(crate) async fn arrived(&self, name: &'static str) {
        let mut begun = self.script.begun.subscribe();
        // The sender lives as long as the probe.
        let _ = begun.wait_for(|begun| begun.contains(&name)).await;
    }

    /// Waits until this many calls of this name have ended.
    pub(crate) async fn ended(&self, name: &'static str, count: usize) {
        let mut ended = self.script.ended.subscribe();
        let _ = ended.wait_for(|ended| of(ended, name) >= count).await;
    }

    /// How many calls of this name have arrived.
    pub(crate) fn count(&self, name: &'static str) -> usize {
        of(&self.script.begun.borrow(), name)
    }

    /// The steps that have arrived, in order.
    pub(crate) fn log(&self) -> Vec<&'static str> {
        self.script.begun.borrow().clone()
    }

    fn faults(&self) -> MutexGuard<'_, HashMap<&'static str, Trouble>> {
        self.script.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, name: &'static str) {
        self.script.begun.send_modify(|begun| begun.push(name));
        let mut held = self.script.held.subscribe();
        let _ = held.wait_for(|held| !held.contains(&name)).await;
    }

    async fn with_trouble(&self, step: &Step) -> StoreResult<Answer> {
        let trouble = self.faults().get(step.action.name()).copied();
        let lost = StoreErrorKind::Unavailable;
        match trouble {
            None | Some(Trouble::Fault(Fault::None)) => self.memory.apply(step).await,
            Some(Trouble::Fault(Fault::NotApplied)) => {
                Err(StoreError::not_applied(lost, "injected: refused"))
            }
            Some(Trouble::Fault(Fault::LostRequest)) => {
                Err(StoreError::maybe_applied(lost, "injected: no reply"))
            }
            Some(Trouble::Fault(Fault::LostReply)) => {
                self.memory.apply(step).await?;
                Err(StoreError::maybe_applied(lost, "injected: no reply"))
            }
            Some(Trouble::Fault(Fault::Repeated)) => {
                self.memory.apply(step).await?;
                self.memory.apply(step).await
            }
            Some(Trouble::Kind(kind)) => Err(StoreError::not_applied(kind, "injected")),
        }
    }
}

fn of(log: &[&'static str], name: &str) -> usize {
    log.iter().filter(|other| **other == name).count()
}

impl Records for Probe {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        let name = step.action.name();
        self.pass(name).await;
        let answer = self.with_trouble(step).await;
        self.script.ended.send_modify(|ended| ended.push(name));
        answer
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        if let Some(Trouble::Kind(kind)) = self.faults().get("get").copied() {
            return Err(StoreError::not_applied(kind, "injected"));
        }
        self.memory.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.pass("settled").await;
        if let Some(Trouble::Kind(kind)) = self.faults().get("settled").copied() {
            return Err(StoreError::not_applied(kind, "injected"));
        }
        self.memory.settled(id, fence).await
    }
}

impl Maintenance for Probe {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.memory.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.memory.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.memory.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.memory.ready().await
    }
}
