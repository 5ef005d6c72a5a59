//! What a backend must offer to be tested.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::store::{Maintenance, Records};
use justonce_core::{Clock, ManualClock, StoreResult, Timestamp};

/// The moment at which the clocks of [`OnManualClock`] start: some time in 2025, so that no sum
/// of the suite's durations comes near either end of time.
const START: Timestamp = Timestamp::from_millis(1_750_000_000_000);

/// A store under test together with its clock. Each chapter of the suite gets one of its own, so
/// each must have a directory, a schema or a key prefix of its own.
///
/// Most stores take a clock and need no implementation of this: see [`OnManualClock`].
pub trait Backend: Sized + Send + Sync + 'static {
    /// The store.
    type Store: Records + Maintenance;

    /// The store, which nothing else uses.
    fn store(&self) -> Arc<Self::Store>;

    /// The store's time.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn now(&self) -> impl Future<Output = StoreResult<Timestamp>> + Send;

    /// Moves the store's clock forward by just this much.
    ///
    /// # Errors
    ///
    /// If the store's clock cannot be set.
    fn advance(&self, by: Duration) -> impl Future<Output = StoreResult<()>> + Send;

    /// Closes the store in good order and opens it again. Whoever got it by [`Backend::store`] has
    /// let go of it.
    ///
    /// # Errors
    ///
    /// If the store does not come back.
    fn restart(self) -> impl Future<Output = StoreResult<Self>> + Send;

    /// What a restart leaves. The suite checks either answer.
    fn survival(&self) -> Survival;

    /// How far the store's clock runs by itself while the suite works, at most. Zero, the default,
    /// for a clock that stands still between two calls of [`Backend::advance`]: then every moment
    /// and every duration must be exact. Otherwise they may differ by this much, and all durations
    /// of the suite grow with it.
    fn clock_slack(&self) -> Duration {
        Duration::ZERO
    }

    /// How many batches the store has sent so far: several steps as one command. With a number, the
    /// chapters for production check that steps which come at once go in batches. `None`, the
    /// default, for a store that has no batches.
    fn batches(&self) -> Option<u64> {
        None
    }
}

/// What a restart leaves of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing: the store was in memory.
    Nothing,
    /// All that had to be on disk.
    Durable,
}

/// A backend made of any store that takes a [`ManualClock`] when it is opened.
///
/// ```
/// use justonce_core::memory::MemoryStore;
/// use justonce_testkit::conformance::{Backend, OnManualClock, Survival};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), justonce_core::StoreError> {
/// let memory = OnManualClock::open(Survival::Nothing, async |clock| Ok(MemoryStore::new(clock)));
/// assert_eq!(memory.await?.survival(), Survival::Nothing);
/// # Ok(())
/// # }
/// ```
pub struct OnManualClock<S, O> {
    store: Arc<S>,
    clock: ManualClock,
    survival: Survival,
    open: O,
}

impl<S, O, F> OnManualClock<S, O>
where
    S: Records + Maintenance,
    O: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = StoreResult<S>> + Send,
{
    /// Opens the store. It is opened once more for each restart; dropping the store must close it.
    ///
    /// # Errors
    ///
    /// If `open` fails.
    pub async fn open(survival: Survival, open: O) -> StoreResult<Self> {
        let clock = ManualClock::starting_at(START);
        let store = Arc::new(open(clock.clone()).await?);
        Ok(Self { store, clock, survival, open })
    }
}

impl<S, O, F> Backend for OnManualClock<S, O>
where
    S: Records + Maintenance,
    O: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = StoreResult<S>> + Send,
{
    type Store = S;

    fn store(&self) -> Arc<S> {
        Arc::clone(&self.store)
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(self.clock.now())
    }

    async fn advance(&self, by: Duration) -> StoreResult<()> {
        self.clock.advance(by);
        Ok(())
    }

    async fn restart(self) -> StoreResult<Self> {
        let Self { store, clock, survival, open } = self;
        // Two handles on one directory are what stores refuse, so the first goes before.
        drop(store);
        let store = Arc::new(open(clock.clone()).await?);
        Ok(Self { store, clock, survival, open })
    }

    fn survival(&self) -> Survival {
        self.survival
    }
}

impl<S, O> fmt::Debug for OnManualClock<S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnManualClock")
            .field("clock", &self.clock)
            .field("survival", &self.survival)
            .finish_non_exhaustive()
    }
}
