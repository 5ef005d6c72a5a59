//! A store with a near cache in front passes the conformance suite like any store.

use justonce_core::memory::MemoryStore;
use justonce_core::store::{Cached, NearCache};
use justonce_testkit::conformance::{OnManualClock, Survival};

justonce_testkit::conformance!(near, || OnManualClock::open(Survival::Nothing, async |clock| {
    let cache = NearCache::builder().clock(clock.clone()).build();
    Ok(Cached::new(MemoryStore::new(clock.clone()), cache).clock(clock))
}));
