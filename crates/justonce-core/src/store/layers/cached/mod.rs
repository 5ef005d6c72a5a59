//! A cache in front of a store: the store decides, the cache answers duplicates of settled
//! operations.
//!
//! A settled record does not change before its retention ends, so an answer about one may be
//! given again. What a cache answers was true in the store at most the cache's age ago, and its
//! retention has not ended since. Losing the cache loses nothing: whatever it does not answer, or
//! not in time, the store does.
//!
//! [`NearCache`] keeps outcomes in this process. A cache that processes share is a backend's
//! business: it implements [`OutcomeCache`].

mod claims;
mod decorator;
mod near;
mod port;

pub use decorator::{CACHE_PAUSE, CACHE_WAIT, Cached};
pub use near::{NEAR_AGE, NEAR_BYTES, NearCache, NearCacheBuilder, NearStats};
pub use port::{CacheEvent, CacheObserver, CachedOutcome, Lookup, OutcomeCache, PutPermit};
