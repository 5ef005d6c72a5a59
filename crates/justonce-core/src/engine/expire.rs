//! Outcomes that are given up before their retention is over.

use super::begin::unexpected;
use super::builder::Engine;
use super::held_claim::Settlement;
use crate::claim::Fence;
use crate::error::StoreResult;
use crate::protocol::{Action, Answer, Step};
use crate::record_id::RecordId;

impl Engine {
    /// Ends the retention of an operation that has ended. What remains is what time would have
    /// left: a tombstone that refuses late arrivals, or nothing, and then the key can be used
    /// anew. The fence is that of the record: a later operation is never met by accident.
    ///
    /// Refused with [`Lost::NotEnded`](crate::Lost::NotEnded) for what is in progress, unknown or
    /// to be tried again.
    ///
    /// ```
    /// # use justonce_core::{AfterRetention, Engine, Key, Operation, Outcome, Policy};
    /// # use justonce_core::{ManualClock, Ran, Scope, engine::Settlement, memory::MemoryStore};
    /// # use std::time::Duration;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let engine = Engine::new(MemoryStore::new(ManualClock::default()));
    /// let late = AfterRetention::Refuse(Duration::from_secs(3600));
    /// let order = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?)
    ///     .with_policy(Policy::builder().after_retention(late).build()?);
    /// engine.run(&order, async |_| Ok(Outcome::bytes("a secret"))).await?;
    ///
    /// let fence = engine.inspect(order.id()).await?.map(|looked| looked.stored.entry.fence());
    /// let expired = engine.expire(order.id(), fence.unwrap_or_default()).await?;
    /// assert_eq!(expired, Settlement::Stored);
    /// let again = engine.run(&order, async |_| Ok(Outcome::bytes("again"))).await?;
    /// assert!(matches!(again, Ran::Expired(_)), "the secret is gone, the refusal is not");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the store fails. The call may be repeated; a repetition may find nothing any more.
    pub async fn expire(&self, id: RecordId, fence: Fence) -> StoreResult<Settlement> {
        self.give_up(id, Action::Expire(fence)).await
    }

    /// Removes the record of an operation that has ended, and its tombstone. Nothing remains: the
    /// next begin with its key **executes again**, however late it comes. Where late arrivals
    /// must be refused, use [`Engine::expire`].
    ///
    /// Refused with [`Lost::NotEnded`](crate::Lost::NotEnded) for what is in progress, unknown or
    /// to be tried again.
    ///
    /// # Errors
    ///
    /// If the store fails. The call may be repeated; a repetition may find nothing any more.
    pub async fn erase(&self, id: RecordId, fence: Fence) -> StoreResult<Settlement> {
        self.give_up(id, Action::Erase(fence)).await
    }

    async fn give_up(&self, id: RecordId, action: Action) -> StoreResult<Settlement> {
        let step = Step::new(id, action);
        match self.inner.store.apply(&step).await? {
            Answer::Applied => Ok(Settlement::Stored),
            Answer::Lost(lost) => Ok(Settlement::Lost(lost)),
            other => Err(unexpected(&step.action, &other)),
        }
    }
}
