//! The memory store passes the chapters for production.

use std::time::SystemTime;

use justonce_core::Timestamp;
use justonce_core::memory::MemoryStore;
use justonce_testkit::conformance::{OnSystemClock, Survival};

#[expect(clippy::disallowed_methods, reason = "the clock of the machine is what is tested")]
fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

justonce_testkit::conformance_in_production!(memory, || OnSystemClock::open(
    Survival::Nothing,
    async || Ok(MemoryStore::new(now))
));
