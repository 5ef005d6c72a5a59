//! Transactions whose commit was not answered.
//!
//! The record decides: it is completed under our fence, or has our checkpoint, if and only if the
//! transaction was committed. The number of the transaction would not do, since a server may give
//! it again after a crash.

use std::time::Duration;

use justonce_core::{Fence, RecordId, StoreResult};
use tokio::time::Instant;

use crate::db::Db;
use crate::numbers::fence_number;
use crate::row::{column, needed};

/// The time limit for finding out, while the database cannot be reached.
const RETRY_LIMIT: Duration = Duration::from_secs(30);
/// The first pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A transaction that may have been committed.
pub(super) struct InDoubt {
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    /// Its server process.
    pub(super) process: i32,
    /// Its number there.
    pub(super) number: String,
    pub(super) stored: Stored,
}

/// What a transaction stores in the record.
#[derive(Clone, Copy)]
pub(super) enum Stored {
    Outcome,
    /// The checkpoint with this number.
    Checkpoint(u32),
}

impl InDoubt {
    /// Retries until the database answers; `None` if it does not within the limit.
    pub(super) async fn is_committed(&self, db: &Db) -> Option<bool> {
        let until = Instant::now() + RETRY_LIMIT;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.query(db).await {
                Ok(is_committed) => return Some(is_committed),
                Err(error) if Instant::now() + pause >= until => {
                    tracing::error!(%error, "it is not known whether a transaction was committed");
                    return None;
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn query(&self, db: &Db) -> StoreResult<bool> {
        // The server may not have noticed that its client is gone, and would keep the locks until
        // then. Before or after the commit, the transaction ends here.
        db.one(&db.sql.terminate_backend, &[&self.process, &self.number]).await?;
        let id = self.id.as_bytes().as_slice();
        let rows = db.rows(&db.sql.commit_status, &[&id]).await?;
        let Some(row) = rows.first() else {
            // Even the claim is missing: a crash has lost it, and everything after it.
            return Ok(false);
        };
        let (state, fence): (&str, i64) = (needed(row, "state")?, needed(row, "fence")?);
        let is_stored = match self.stored {
            Stored::Outcome => state == "completed",
            Stored::Checkpoint(number) => {
                let last: Option<i64> = column(row, "point_number")?;
                last.is_some_and(|last| last >= i64::from(number))
            }
        };
        Ok(is_stored && fence == fence_number(self.fence))
    }
}
