//! The protocol on a memory store.

use super::MemoryStore;
use crate::claim::Fence;
use crate::error::StoreResult;
use crate::protocol::{Answer, ClaimEnd, Step};
use crate::record_id::RecordId;
use crate::store::{Records, Stored};

impl Records for MemoryStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        Ok(self.step(step.id, &step.action))
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        Ok(self.shards.of(id).get(id).map(|slot| slot.stored.clone()))
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        match self.waiting_for(id, fence) {
            Some(waiters) => Ok(waiters.ended().await.clone()),
            None => Ok(None),
        }
    }
}
