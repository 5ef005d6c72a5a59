//! The protocol on PostgreSQL.

use justonce_core::store::{Records, Stored};
use justonce_core::{Action, Answer, Fence, RecordId, Step, StoreResult};

use crate::error::damaged;
use crate::lanes::{self, Kind};
use crate::numbers::fence_number;
use crate::open::PostgresStore;
use crate::together::{is_small, may_join};
use crate::{read, step};

impl Records for PostgresStore {
    async fn apply(&self, step: &Step) -> StoreResult<Answer> {
        if let Action::Complete(fence, _) = &step.action
            && self.0.committed.take(&step.id, *fence)
        {
            return Ok(Answer::Applied);
        }
        match &step.action {
            Action::Begin(begin) if may_join(begin) => {
                lanes::apply(&self.0, Kind::Claims, step).await
            }
            Action::Complete(_, outcome) if is_small(outcome) => {
                lanes::apply(&self.0, Kind::Completions, step).await
            }
            _ => step::apply(&self.0.db, step).await,
        }
    }

    async fn get(&self, id: &RecordId) -> StoreResult<Option<Stored>> {
        let db = &self.0.db;
        let rows = db.rows(&db.sql.get, &[&id.as_bytes().as_slice()]).await?;
        rows.first().map(read::stored).transpose()
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
