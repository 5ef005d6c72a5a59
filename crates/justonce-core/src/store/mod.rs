//! The ports: what a store must be able to do, and decorators around any store.
//!
//! A backend implements [`Records`] and [`Maintenance`], with plain `async fn`. The engine takes
//! any of them behind one object-safe boundary, [`DynStore`]. Timeout, retry, observation, a cache
//! of outcomes and fault injection are decorators, never code inside a store. What several backends
//! need inside is here too: [`Shards`] of records in memory, [`Lanes`] for steps that share
//! commands.

mod cached;
mod dynamic;
mod fault;
mod health;
mod lanes;
mod maintenance;
mod observe;
mod records;
mod retry;
mod shards;
mod timeout;

pub use cached::{
    CACHE_PAUSE, CACHE_WAIT, CacheEvent, CacheObserver, Cached, Kept, Looked, NEAR_AGE, NEAR_BYTES,
    NearCache, NearCacheBuilder, NearStats, OutcomeCache, Ticket,
};
pub use dynamic::{BoxFuture, DynStore, SharedStore};
pub use fault::{Fault, FaultPlan, Faulty};
pub use health::{
    DamageLog, DamagedRecords, Health, HealthWarning, MAX_DAMAGED_NAMED, MAX_DAMAGED_REMEMBERED,
};
pub use lanes::{Caller, Carrier, LaneLimits, Lanes, Told, Waiting, may_share};
pub use maintenance::{
    Cursor, ListQuery, MAX_PAGE, Maintenance, Page, StateStats, Stats, Summary, SweepReport,
};
pub use observe::{BecameUnknown, Observed, Observer, Seen};
pub use records::{Records, Stored};
pub use retry::{Retry, RetryPolicy};
pub use shards::{IdHasher, IdMap, Shards};
pub use timeout::Timeout;
