//! The protocol on an embedded store.

use std::sync::Arc;

use justonce_core::store::{Records, Stored};
use justonce_core::{Answer, ClaimEnd, Fence, RecordId, Step, StoreResult, is_running};

use crate::open::EmbeddedStore;
use crate::state::{ClaimWaiters, closed};
use crate::step::{StepResult, durable};
use crate::write::Write;

impl Records for EmbeddedStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        loop {
            match self.0.stepper().attempt(step.id, &step.action)? {
                StepResult::Decided(answer, ticket) => {
                    if let Some(ticket) = ticket {
                        durable(&ticket).await?;
                    }
                    return Ok(answer);
                }
                StepResult::NoFences => {
                    let ticket = self.0.commits.enqueue(Write::empty()).map_err(|_| closed())?;
                    durable(&ticket).await?;
                }
            }
        }
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let live = {
            let shard = self.0.state.table.of(id);
            shard.live.get(id).map(|live| (live.row.clone(), live.pending.clone()))
        };
        if let Some((row, pending)) = live {
            if let Some(ticket) = pending {
                durable(&ticket).await?;
            }
            return Ok(row.map(|row| row.stored.clone()));
        }
        Ok(self.0.state.settled(id)?.map(|found| found.row.stored.clone()))
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        let Some(waiters) = self.waiting_for(id, fence) else {
            return Ok(None);
        };
        let (ended, pending) = waiters.ended().await;
        let Some(ended) = ended else { return Ok(None) };
        if let Some(ticket) = pending {
            durable(ticket).await?;
        }
        Ok(Some(ended.clone()))
    }
}

impl EmbeddedStore {
    /// The waiters for the claim with this fence, if it is running.
    fn waiting_for(&self, id: &RecordId, fence: Fence) -> Option<Arc<ClaimWaiters>> {
        let mut shard = self.0.state.table.of(id);
        let now = self.0.state.now();
        let live = shard.live.get_mut(id)?;
        let running =
            live.row.as_ref().is_some_and(|row| is_running(&row.stored.entry, fence, now));
        running.then(|| Arc::clone(live.waiters.get_or_insert_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use justonce_core::{Key, Operation, Owner, Scope, Token};

    #[tokio::test]
    async fn more_fences_are_reserved_before_they_run_out() {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path()).unwrap();
        while store.0.state.fences.allocate().is_some() {}
        let operation = Operation::without_fingerprint(Scope::global(), Key::client("a").unwrap());
        let begin = Step::begin(&operation, Owner::new("a"), Token(1));
        let Answer::Claimed(claimed) = store.apply(&begin).await.unwrap() else {
            panic!("it was new");
        };
        drop(store);
        let store = EmbeddedStore::open(directory.path()).unwrap();
        let next = store.0.state.fences.allocate().unwrap();
        assert!(next > claimed.fence, "{next} after {}", claimed.fence);
    }
}
