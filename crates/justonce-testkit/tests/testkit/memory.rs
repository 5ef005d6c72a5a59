//! The memory store passes the conformance suite.

use justonce_core::memory::MemoryStore;
use justonce_testkit::conformance::{OnManualClock, Survival};

justonce_testkit::conformance!(memory, || OnManualClock::open(
    Survival::Nothing,
    async |clock| Ok(MemoryStore::new(clock))
));
