//! Stores as they are in production: on the clock of the machine.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use justonce_core::store::{Maintenance, Records};
use justonce_core::{StoreResult, Timestamp};

use super::backend::{Backend, Survival};

/// How far the clock may run between reading it and the step that follows: far more than a step
/// takes on a busy machine. All durations of cases grow with it, and none of them is waited for.
const SLACK: Duration = Duration::from_secs(10);
/// How much longer is waited than asked for: a store may read another clock of the machine.
const MARGIN: Duration = Duration::from_millis(50);

/// A backend made of any store that takes no clock for tests: it works as in production, with all
/// that a clock for tests switches off. A server that the store uses must run on this machine.
///
/// ```
/// use justonce_core::Timestamp;
/// use justonce_core::memory::MemoryStore;
/// use justonce_testkit::conformance::{Backend, OnSystemClock, Survival};
/// use std::time::SystemTime;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), justonce_core::StoreError> {
/// # #[expect(clippy::disallowed_methods, reason = "the clock of the machine is what is tested")]
/// let clock = || Timestamp::from(SystemTime::now());
/// let open = move || async move { Ok(MemoryStore::new(clock)) };
/// let memory = OnSystemClock::open(Survival::Nothing, open).await?;
/// assert_eq!(memory.survival(), Survival::Nothing);
/// # Ok(())
/// # }
/// ```
pub struct OnSystemClock<S, O> {
    store: Arc<S>,
    survival: Survival,
    open: O,
    batches: Option<Box<dyn Fn() -> u64 + Send + Sync>>,
}

impl<S, O, F> OnSystemClock<S, O>
where
    S: Records + Maintenance,
    O: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = StoreResult<S>> + Send,
{
    /// Opens the store. It is opened once more for each restart, after it was dropped: a closure
    /// that is called again restarts the server, if there is one.
    ///
    /// # Errors
    ///
    /// If `open` fails.
    pub async fn open(survival: Survival, open: O) -> StoreResult<Self> {
        let store = Arc::new(open().await?);
        Ok(Self { store, survival, open, batches: None })
    }

    /// How to count the batches that the store has sent: see [`Backend::batches`].
    #[must_use]
    pub fn counting(mut self, batches: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.batches = Some(Box::new(batches));
        self
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of the machine is what is tested")]
fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

impl<S, O, F> Backend for OnSystemClock<S, O>
where
    S: Records + Maintenance,
    O: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = StoreResult<S>> + Send,
{
    type Store = S;

    fn store(&self) -> Arc<S> {
        Arc::clone(&self.store)
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(now())
    }

    /// Waits.
    async fn advance(&self, by: Duration) -> StoreResult<()> {
        let until = now().after(by + MARGIN);
        loop {
            let left = until.since(now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left).await;
        }
    }

    async fn restart(self) -> StoreResult<Self> {
        let Self { store, survival, open, batches } = self;
        drop(store);
        let store = Arc::new(open().await?);
        Ok(Self { store, survival, open, batches })
    }

    fn survival(&self) -> Survival {
        self.survival
    }

    fn clock_slack(&self) -> Duration {
        SLACK
    }

    fn batches(&self) -> Option<u64> {
        self.batches.as_ref().map(|batches| batches())
    }
}

impl<S, O> fmt::Debug for OnSystemClock<S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnSystemClock").field("survival", &self.survival).finish_non_exhaustive()
    }
}
