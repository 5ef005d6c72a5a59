//! The engine and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::background::Background;
use super::not_stored::{NotStoredObserver, NotStoredWhy, report};
use super::orphaned_begins::OrphanedBegins;
use super::renewal::Renewals;
use crate::claim::Owner;
use crate::entropy::Entropy;
use crate::protocol::Step;
use crate::store::{DynStore, SharedStore};
use crate::worker::{Schedule, WorkerObserver};

/// The most operations that an engine can be told to execute at once.
const MAX_CONCURRENT: usize = 1 << 24;

/// Bounds of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many operations may execute at once. More wait for a place, without a claim.
    pub max_concurrent: usize,
    /// How long an operation waits for a place before it is refused.
    pub queue_timeout: Duration,
    /// How many duplicates may wait at once. More get *busy* at once.
    pub max_waiters: usize,
    /// How long the storing of an outcome is tried before the caller learns that it could not be
    /// stored yet.
    pub settle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_concurrent: 1000,
            queue_timeout: Duration::from_secs(5),
            max_waiters: 10_000,
            settle_timeout: Duration::from_secs(5),
        }
    }
}

/// Makes operations take effect once. Cheap to clone; clones share everything.
///
/// ```
/// use justonce_core::engine::{Engine, Limits};
/// use justonce_core::{ManualClock, memory::MemoryStore};
///
/// // The default.
/// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
///
/// // Customised.
/// let engine = Engine::builder(MemoryStore::new(ManualClock::default()))
///     .owner("worker-3")
///     .limits(Limits { max_concurrent: 64, ..Limits::default() })
///     .build();
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: SharedStore,
    pub(super) owner: Owner,
    pub(super) entropy: Entropy,
    pub(super) limits: Limits,
    pub(super) executions: Arc<Semaphore>,
    pub(super) waiters: Semaphore,
    pub(super) background: Background,
    pub(super) renewals: Arc<Renewals>,
    pub(super) lost_begins: OrphanedBegins,
    worker_observer: Option<Arc<dyn WorkerObserver>>,
    not_stored_observer: Option<Arc<dyn NotStoredObserver>>,
}

impl Inner {
    /// A step that no caller waits for is not stored, and is not tried again.
    pub(super) fn not_stored(&self, step: &Step, why: NotStoredWhy<'_>) {
        report(self.not_stored_observer.as_ref(), step, why);
    }
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Claims held now.
    pub executing: usize,
    /// Duplicates waiting now.
    pub waiting: usize,
}

impl Engine {
    /// An engine with the default settings.
    #[must_use]
    pub fn new(store: impl DynStore) -> Self {
        Self::builder(store).build()
    }

    /// Starts an engine with other settings.
    pub fn builder(store: impl DynStore) -> EngineBuilder {
        Self::builder_shared(Arc::new(store))
    }

    /// The same on a store that others use too.
    pub fn builder_shared(store: SharedStore) -> EngineBuilder {
        EngineBuilder {
            store,
            owner: None,
            entropy: None,
            limits: Limits::default(),
            background: None,
            worker_observer: None,
            not_stored_observer: None,
        }
    }

    /// The store under the engine.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.inner.store
    }

    /// The name under which this engine holds claims.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.inner.owner
    }

    /// A schedule for a [`Worker`](crate::worker::Worker) beside the engine: it has the engine's
    /// observer.
    #[must_use]
    pub fn schedule(&self, name: &'static str, every: Duration) -> Schedule {
        let schedule = Schedule::every(name, every);
        match &self.inner.worker_observer {
            Some(observer) => schedule.observer(Arc::clone(observer)),
            None => schedule,
        }
    }

    /// How busy the engine is now.
    #[must_use]
    pub fn load(&self) -> Load {
        let limits = &self.inner.limits;
        Load {
            executing: limits.max_concurrent - self.inner.executions.available_permits(),
            waiting: limits.max_waiters - self.inner.waiters.available_permits(),
        }
    }
}

impl Engine {
    /// Waits until nothing is executing, and what callers left is stored: claims that were dropped,
    /// checkpoints, begins that were not answered (for as long as a lease). Operations that begin
    /// meanwhile wait for their place, so call it when no more are let in.
    pub async fn drained(&self) {
        let all = u32::try_from(self.inner.limits.max_concurrent).unwrap_or(u32::MAX);
        // The semaphore is never closed; if it were, nothing could execute either.
        let _ = self.inner.executions.acquire_many(all).await;
        self.inner.background.finished().await;
        self.inner.lost_begins.given_back().await;
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("owner", &self.inner.owner)
            .field("limits", &self.inner.limits)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.renewals.stop();
        self.background.stop();
    }
}

/// Collects the settings of an [`Engine`].
#[must_use = "a builder does nothing until `build`"]
pub struct EngineBuilder {
    store: SharedStore,
    owner: Option<Owner>,
    entropy: Option<Entropy>,
    limits: Limits,
    background: Option<Handle>,
    worker_observer: Option<Arc<dyn WorkerObserver>>,
    not_stored_observer: Option<Arc<dyn NotStoredObserver>>,
}

impl EngineBuilder {
    /// The name under which this engine holds claims, for operators. Default: a random one.
    pub fn owner(mut self, name: &str) -> Self {
        self.owner = Some(Owner::new(name));
        self
    }

    /// The source of randomness. Default: seeded by the system.
    pub fn entropy(mut self, entropy: Entropy) -> Self {
        self.entropy = Some(entropy);
        self
    }

    /// The bounds. Default: [`Limits::default`].
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The runtime on which leases are renewed, and on which is finished what callers left.
    /// Default: a small one on a thread of the engine's own, started with the first claim, so that
    /// no runtime of a caller's matters.
    ///
    /// Give one where a test pauses tokio's time: that of the thread goes on by itself.
    ///
    /// ```
    /// # use justonce_core::{Engine, ManualClock, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let engine = Engine::builder(MemoryStore::new(ManualClock::default()))
    ///     .background(tokio::runtime::Handle::current())
    ///     .build();
    /// # }
    /// ```
    pub fn background(mut self, runtime: Handle) -> Self {
        self.background = Some(runtime);
        self
    }

    /// Gets the end of every round of the engine's workers: reaper, probers, completers. Default:
    /// none.
    pub fn worker_observer(mut self, observer: Arc<dyn WorkerObserver>) -> Self {
        self.worker_observer = Some(observer);
        self
    }

    /// Gets every step that was taken in the background, for a caller who had left, and could not
    /// be stored. Default: none; the engine logs it either way.
    ///
    /// ```
    /// use justonce_core::engine::{NotStored, NotStoredObserver};
    /// # use justonce_core::{Engine, ManualClock, memory::MemoryStore};
    /// use std::sync::Arc;
    ///
    /// struct Alert;
    ///
    /// impl NotStoredObserver for Alert {
    ///     fn not_stored(&self, step: &NotStored<'_>) {
    ///         eprintln!("{} of {} is not stored: {}", step.step, step.id, step.why);
    ///     }
    /// }
    ///
    /// let engine = Engine::builder(MemoryStore::new(ManualClock::default()))
    ///     .not_stored_observer(Arc::new(Alert))
    ///     .build();
    /// ```
    pub fn not_stored_observer(mut self, observer: Arc<dyn NotStoredObserver>) -> Self {
        self.not_stored_observer = Some(observer);
        self
    }

    /// Builds the engine. Semaphores have an upper bound, so absurd limits are cut to it.
    #[must_use]
    pub fn build(mut self) -> Engine {
        let limits = &mut self.limits;
        limits.max_concurrent = limits.max_concurrent.clamp(1, MAX_CONCURRENT);
        limits.max_waiters = limits.max_waiters.min(Semaphore::MAX_PERMITS);
        let entropy = self.entropy.unwrap_or_else(Entropy::from_system);
        let owner =
            self.owner.unwrap_or_else(|| Owner::new(&format!("engine-{:08x}", entropy.next_u32())));
        Engine {
            inner: Arc::new(Inner {
                store: self.store,
                owner,
                entropy,
                limits: self.limits,
                executions: Arc::new(Semaphore::new(self.limits.max_concurrent)),
                waiters: Semaphore::new(self.limits.max_waiters),
                background: Background::new(self.background),
                renewals: Arc::default(),
                lost_begins: OrphanedBegins::default(),
                worker_observer: self.worker_observer,
                not_stored_observer: self.not_stored_observer,
            }),
        }
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
