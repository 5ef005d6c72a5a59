//! The protocol on PostgreSQL.

use justonce_core::store::{Records, Stored, may_share};
use justonce_core::{Action, Answer, Fence, RecordId, Step, StoreResult};

use crate::error::damaged;
use crate::numbers::fence_number;
use crate::open::PostgresStore;
use crate::together::{is_forgettable, may_join};
use crate::{read, step};

impl Records for PostgresStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        if let Action::Complete(fence, _) = &step.action
            && self.0.committed.take(&step.id, *fence)
        {
            return Ok(Answer::Applied);
        }
        let together = match &step.action {
            Action::Begin(begin) if !may_join(begin) => None,
            Action::Begin(begin) if is_forgettable(begin) => Some(&self.0.reruns),
            Action::Begin(_) => Some(&self.0.claims),
            Action::Complete(_, outcome) if may_share(outcome) => Some(&self.0.completions),
            _ => None,
        };
        if let Some(lanes) = together
            && let Some(answer) = lanes.apply(step.clone()).await?
        {
            return Ok(answer);
        }
        // Large, and where steps go together rare.
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

    async fn settled(&self, id: &RecordId, fence: Fence) -> StoreResult<()> {
        let waiter = self.0.listener.waiter(id);
        let mut woken = std::pin::pin!(waiter.woken());
        // From here on nothing is missed: neither an end nor a broken connection.
        woken.as_mut().enable();
        self.0.listener.listening().await?;
        let db = &self.0.db;
        let id = id.as_bytes().as_slice();
        let row = db.one(&db.sql.wait, &[&db.now(), &id, &fence_number(fence)]).await?;
        if row.try_get(0).map_err(damaged)? {
            woken.await;
        }
        Ok(())
    }
}
