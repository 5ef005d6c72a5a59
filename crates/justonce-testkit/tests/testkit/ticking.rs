//! The suite also serves stores whose clock runs by itself: the memory store on such a clock
//! passes it.

use std::sync::Arc;
use std::time::Duration;

use justonce_core::memory::MemoryStore;
use justonce_core::{Clock, ManualClock, StoreResult, TimerClock, Timestamp};
use justonce_testkit::conformance::{Backend, Survival};

/// A memory store whose clock runs on between two moments.
struct Ticking {
    store: Arc<MemoryStore>,
    moved: ManualClock,
    ticks: TimerClock,
}

impl Ticking {
    fn open(moved: ManualClock, ticks: TimerClock) -> Self {
        let clock = moved.clone();
        let store = Arc::new(MemoryStore::new(move || shown(&clock, &ticks)));
        Self { store, moved, ticks }
    }
}

/// What the clock shows: how far it was moved and how far it ran.
fn shown(moved: &ManualClock, ticks: &TimerClock) -> Timestamp {
    ticks.now().after(moved.now().since(Timestamp::ZERO))
}

impl Backend for Ticking {
    type Store = MemoryStore;

    fn store(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.store)
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(shown(&self.moved, &self.ticks))
    }

    async fn advance(&self, by: Duration) -> StoreResult<()> {
        self.moved.advance(by);
        Ok(())
    }

    async fn restart(self) -> StoreResult<Self> {
        Ok(Self::open(self.moved, self.ticks))
    }

    fn survival(&self) -> Survival {
        Survival::Nothing
    }

    fn clock_slack(&self) -> Duration {
        Duration::from_secs(60)
    }
}

justonce_testkit::conformance!(ticking, async || {
    let ticks = TimerClock::starting_at(Timestamp::from_millis(1_750_000_000_000));
    Ok(Ticking::open(ManualClock::default(), ticks))
});
