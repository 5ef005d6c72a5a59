//! The protocol on a memory store.

use super::MemoryStore;
use crate::claim::Fence;
use crate::error::StoreResult;
use crate::protocol::{Answer, Step};
use crate::record_id::RecordId;
use crate::store::{Records, Stored};

impl Records for MemoryStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        Ok(self.step(step.id, &step.action))
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        Ok(self.shards.of(id).get(id).map(|slot| slot.stored.clone()))
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<()> {
        let Some(waiters) = self.waiting_for(id, fence) else {
            return Ok(());
        };
        // A claim that ended between the two looks has taken its waiters along, so the second
        // look finds other ones or none.
        let woken = waiters.notified();
        let still = self.waiting_for(id, fence);
        if still.is_some_and(|now| std::sync::Arc::ptr_eq(&now, &waiters)) {
            woken.await;
        }
        Ok(())
    }
}
