//! One store, an engine on it, and hands on everything between them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::engine::{EngineBuilder, Limits};
use justonce_core::memory::MemoryStore;
use justonce_core::store::{Faulty, Observed, Records, Stored};
use justonce_core::{
    Engine, Entropy, Key, OnConcurrent, OnLapsed, Operation, Policy, PolicyBuilder, RecordId,
    Scope, State, StateName, TimerClock, Timestamp,
};

use super::script::{Calls, Faults};
use super::shared::Shared;

/// What the store's clock shows when a test begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// The lease of [`policy`].
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// The cap of [`policy`].
pub(crate) const LEASE_CAP: Duration = Duration::from_secs(15 * 60);
/// One second, the unit of most tests.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// An engine on a store whose steps can be made to fail and are all logged.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Shared,
    pub(crate) engine: Engine,
    pub(crate) faults: Faults,
    pub(crate) calls: Calls,
}

impl World {
    /// A new store with an engine of default limits.
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    /// The same with other limits.
    pub(crate) fn with(limits: Limits) -> Self {
        let memory = MemoryStore::new(TimerClock::starting_at(START));
        Self::on(Shared(Arc::new(memory)), 1, limits)
    }

    /// A second engine on the same store, as another process would have it: its store calls have
    /// their own faults and their own log.
    pub(crate) fn second(&self) -> Self {
        Self::on(self.store.clone(), 2, Limits::default())
    }

    fn on(store: Shared, seed: u64, limits: Limits) -> Self {
        let (faults, calls) = (Faults::default(), Calls::default());
        let faulty = Faulty::new(store.clone(), faults.clone());
        let engine = seeded(Engine::builder(Observed::new(faulty, calls.clone())), seed)
            .limits(limits)
            .build();
        Self { store, engine, faults, calls }
    }

    /// What the store keeps of an operation.
    pub(crate) async fn stored(&self, operation: &Operation) -> Option<Stored> {
        get(&self.store, &operation.id()).await
    }

    /// The state of an operation as it is stored.
    pub(crate) async fn state(&self, operation: &Operation) -> StateName {
        let stored = self.stored(operation).await;
        stored.map_or(StateName::Absent, |stored| stored.entry.state_name())
    }

    /// Why an operation is unknown.
    pub(crate) async fn unknown_reason(
        &self,
        operation: &Operation,
    ) -> Option<justonce_core::UnknownReason> {
        match self.stored(operation).await?.entry.record()?.state {
            State::Unknown(ref unknown) => Some(unknown.reason),
            _ => None,
        }
    }
}

/// An engine whose numbers are the same in every run, and whose time is that of the test.
pub(crate) fn seeded(builder: EngineBuilder, seed: u64) -> EngineBuilder {
    builder
        .owner(&format!("engine-{seed}"))
        .entropy(Entropy::seeded(seed))
        .background(tokio::runtime::Handle::current())
}

async fn get(store: &Shared, id: &RecordId) -> Option<Stored> {
    store.get(id).await.expect("a memory store can be read")
}

/// The default policy but for what becomes of a lapsed lease.
pub(crate) fn policy(on_lapsed: OnLapsed) -> PolicyBuilder {
    Policy::builder().lease(LEASE).lease_cap(LEASE_CAP).on_lapsed(on_lapsed)
}

/// An operation of this policy whose duplicates are told at once that it is busy.
pub(crate) fn operation(policy: PolicyBuilder) -> Operation {
    named("order-17", policy)
}

/// The same under another key.
pub(crate) fn named(key: &str, policy: PolicyBuilder) -> Operation {
    let key = Key::client(key).expect("a valid key");
    Operation::without_fingerprint(Scope::global(), key)
        .with_policy(policy.build().expect("a valid policy"))
        .on_concurrent(OnConcurrent::Reject)
}

/// A limit of attempts.
pub(crate) fn attempts(limit: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(limit)
}

/// Lets virtual time pass; everything that is due meanwhile happens.
pub(crate) async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await; // tidy: allow-sleep: time is paused, so it is virtual
    }
}

/// Lets background tasks do what they can do without time passing much.
pub(crate) async fn breathe() {
    pass(Duration::from_millis(1)).await;
}
