//! Looking at one record costs one record, however many there are.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use justonce_core::store::{ListQuery, Maintenance, Page, Records, Stats, Stored, SweepReport};
use justonce_core::{
    Answer, ClaimEnd, Engine, Fence, OnLapsed, RecordId, Step, StoreResult, UnknownReason,
};

use crate::common::shared::Shared;
use crate::common::world::{SECOND, World, named, pass, policy};

/// A store that notes the lists that it is asked for.
struct Lists {
    inner: Shared,
    queries: Arc<Mutex<Vec<ListQuery>>>,
}

impl Records for Lists {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        self.inner.apply(step).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        self.inner.get(id).await
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        self.inner.settled(id, fence).await
    }
}

impl Maintenance for Lists {
    async fn list(&self, query: &ListQuery) -> StoreResult<Page> {
        self.queries.lock().unwrap().push(query.clone());
        self.inner.list(query).await
    }

    async fn stats(&self) -> StoreResult<Stats> {
        self.inner.stats().await
    }

    async fn sweep(&self, limit: usize) -> StoreResult<SweepReport> {
        self.inner.sweep(limit).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }
}

#[tokio::test(start_paused = true)]
async fn how_long_an_operation_is_unknown_is_read_from_its_record_alone() {
    let world = World::new();
    let queries = Arc::default();
    let engine = Engine::new(Lists { inner: world.store.clone(), queries: Arc::clone(&queries) });
    let mut ids = Vec::new();
    for number in 0..20 {
        let order = named(&format!("order-{number}"), policy(OnLapsed::Hold));
        let justonce_core::engine::Begun::Claimed(mut claim) =
            world.engine.begin(&order).await.unwrap()
        else {
            panic!("it is new")
        };
        let _ = claim.abandon(UnknownReason::Reported).await.unwrap();
        ids.push((order.id(), order.scope().clone()));
        pass(SECOND).await;
    }
    let ten: Duration = 10 * SECOND;
    for (at, (id, scope)) in ids.into_iter().enumerate() {
        let is_old = engine.is_unknown_for(id, scope, ten).await.unwrap();
        assert_eq!(is_old, 20 - at >= 10, "order-{at}");
        let asked: Vec<ListQuery> = std::mem::take(&mut *queries.lock().unwrap());
        assert!(asked.iter().all(|query| query.only == Some(id)), "{asked:?}");
    }
}
