//! The protocol on PostgreSQL.

use justonce_core::store::{Records, Stored, may_batch};
use justonce_core::{Action, Answer, ClaimEnd, Fence, RecordId, Step, StoreResult};

use crate::batch::{is_forgettable, may_batch_begin};
use crate::error::damaged;
use crate::numbers::fence_number;
use crate::store::PostgresStore;
use crate::{read, step};

impl Records for PostgresStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        if let Action::Complete(fence, _) = &step.action
            && self.0.committed.take(&step.id, *fence)
        {
            return Ok(Answer::Applied);
        }
        let queue = match &step.action {
            Action::Begin(begin) if !may_batch_begin(begin) => None,
            Action::Begin(begin) if is_forgettable(begin) => Some(&self.0.reruns),
            Action::Begin(_) => Some(&self.0.claims),
            Action::Complete(_, outcome) if may_batch(outcome) => Some(&self.0.completions),
            _ => None,
        };
        if let Some(queue) = queue
            && let Some(answer) = queue.call(step.clone()).await?
        {
            return Ok(answer);
        }
        // Large, and rare where steps are batched.
        Box::pin(step::apply(&self.0.db, None, step)).await
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let db = &self.0.db;
        let rows = db.rows(&db.sql.get, &[&id.as_bytes().as_slice()]).await?;
        let stored = rows.first().map(read::stored).transpose();
        match &stored {
            Ok(_) => self.0.damage.forget(id),
            Err(error) => self.0.note_damage(id, error),
        }
        stored
    }

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<Option<ClaimEnd>> {
        let waiter = self.0.subscription.register(id);
        let mut woken = std::pin::pin!(waiter.woken());
        // From now on neither an end nor a broken connection is missed.
        woken.as_mut().enable();
        self.0.subscription.listening().await?;
        let db = &self.0.db;
        let id = id.as_bytes().as_slice();
        let row = db.one(&db.sql.watch, &[&db.now(), &id, &fence_number(fence)]).await?;
        if row.try_get(0).map_err(damaged)? {
            woken.await;
        }
        // A notification says that it ended, and not how.
        Ok(None)
    }
}
