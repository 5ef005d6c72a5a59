//! The protocol on a Redis store.

use justonce_core::store::{Records, Stored};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult};
use redis::Value;

use crate::batch::BatchedStep;
use crate::error::unexpected;
use crate::layout::bucket;
use crate::store::RedisStore;
use crate::{codec, reply};

impl Records for RedisStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        if !self.monitor.is_driven() {
            Box::pin(self.monitor.restart()).await;
        }
        if let Some(batches) = &self.batches
            && let Some(batched) = BatchedStep::new(step)
            && let Some(value) = batches.apply(batched).await?
        {
            return Ok(reply::answered(step, &value)?.answer);
        }
        // Large, and rare where steps are batched.
        Box::pin(self.apply_alone(step)).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let mut command = redis::cmd("GET");
        command.arg(self.layout().record(id));
        match self.send(bucket(id), &command).await? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(codec::stored(id, &bytes)?)),
            _ => Err(unexpected("GET")),
        }
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        let waiter = self.subscription.register(*id, fence).await?;
        let keys = [self.layout().record(id)];
        let (moment, fence) = (self.moment(), fence.get().to_be_bytes());
        let arguments = [moment.as_bytes(), &fence];
        match self.run(id, &self.scripts.watch, &keys, &arguments).await?.value {
            Value::Int(0) => Ok(None),
            Value::Int(_) => {
                // A message says that it ended, and not how.
                waiter.woken().await;
                Ok(None)
            }
            _ => Err(unexpected("a wait")),
        }
    }
}
