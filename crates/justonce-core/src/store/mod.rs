//! The ports: what a store must be able to do, and layers around any store.
//!
//! A backend implements [`Records`] and [`Maintenance`], with plain `async fn`. The engine takes
//! any of them behind one object-safe boundary, [`DynStore`]. Timeout, retry, observation, a cache
//! of outcomes and fault injection are layers, never code inside a store. What several backends
//! need inside is here too: [`Shards`] of records in memory, a [`BatchQueue`] for steps that share
//! commands, and [`PerRuntime`] for what must not depend on another runtime.

mod batching;
mod dynamic;
mod health;
mod layers;
mod maintenance;
mod per_runtime;
mod records;
mod shards;
mod waiters;

pub use crate::protocol::Stored;
pub use batching::{BatchExecutor, BatchLimits, BatchQueue, Pending, Replies, ReplyTo, may_batch};
pub use dynamic::{BoxFuture, DynStore, SharedStore};
pub use health::{
    BoundUse, DamageLog, DamagedRecords, Health, HealthWarning, MAX_DAMAGED_NAMED,
    MAX_DAMAGED_REMEMBERED,
};
pub use layers::{
    BecameUnknown, CACHE_PAUSE, CACHE_WAIT, CacheEvent, CacheObserver, Cached, CachedOutcome,
    Fault, FaultPlan, Faulty, Lookup, NEAR_AGE, NEAR_BYTES, NearCache, NearCacheBuilder, NearStats,
    Observed, Observer, OutcomeCache, PutPermit, Retry, RetryPolicy, Seen, Timeout,
};
pub use maintenance::{
    Cursor, ListQuery, MAX_PAGE, Maintenance, Page, StateStats, Stats, Summary, SweepReport,
};
pub use per_runtime::PerRuntime;
pub use records::Records;
pub use shards::{IdHasher, IdMap, Shards};
pub use waiters::Waiters;
