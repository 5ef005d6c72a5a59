//! Layers around any store: timeout, retry, observation, a cache of outcomes, injected faults.

mod cached;
mod fault;
mod observe;
mod retry;
mod timeout;

pub use cached::{
    CACHE_PAUSE, CACHE_WAIT, CacheEvent, CacheObserver, Cached, CachedOutcome, Lookup, NEAR_AGE,
    NEAR_BYTES, NearCache, NearCacheBuilder, NearStats, OutcomeCache, PutPermit,
};
pub use fault::{Fault, FaultPlan, Faulty};
pub use observe::{BecameUnknown, Observed, Observer, Seen};
pub use retry::{Retry, RetryPolicy};
pub use timeout::Timeout;
