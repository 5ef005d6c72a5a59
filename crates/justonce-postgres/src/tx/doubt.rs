//! What became of a transaction whose commit was not answered.
//!
//! The record is the truth: it is completed under our fence, or has our checkpoint, if and only if
//! the transaction was committed. The transaction's number would not do, as a server that crashed
//! may give it again.

use std::time::Duration;

use justonce_core::{Fence, RecordId, StoreResult};
use tokio::time::Instant;

use crate::db::Db;
use crate::numbers::fence_number;
use crate::read::{column, needed};

/// For how long the database is asked, while it cannot be reached.
const ASKED_FOR: Duration = Duration::from_secs(30);
/// The first pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A transaction of which we do not know whether it was committed.
#[derive(Debug)]
pub(super) struct InDoubt {
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    /// The server's process that has it.
    pub(super) process: i32,
    /// Its number there.
    pub(super) number: String,
    pub(super) brings: Brings,
}

/// What a transaction brings to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brings {
    /// Its outcome.
    Outcome,
    /// The checkpoint with this number.
    Checkpoint(u32),
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Became {
    Committed,
    RolledBack,
}

impl InDoubt {
    /// Asks until the database answers; nothing if it does not.
    pub(super) async fn became(&self, db: &Db) -> Option<Became> {
        let until = Instant::now() + ASKED_FOR;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.ask(db).await {
                Ok(became) => return Some(became),
                Err(error) if Instant::now() + pause >= until => {
                    tracing::error!(%error, "nobody knows whether a transaction was committed");
                    return None;
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn ask(&self, db: &Db) -> StoreResult<Became> {
        // Its client is gone, but the server may not have noticed: then it would hold its locks
        // for as long as that takes. Whether this comes before or after the commit, it is over.
        db.one(&db.sql.end_doubt, &[&self.process, &self.number]).await?;
        let id = self.id.as_bytes().as_slice();
        let rows = db.rows(&db.sql.became, &[&id]).await?;
        let Some(row) = rows.first() else {
            // Not even the claim is there: a crash has forgotten it, and all that came after.
            return Ok(Became::RolledBack);
        };
        let (state, fence): (&str, i64) = (needed(row, "state")?, needed(row, "fence")?);
        let there = match self.brings {
            Brings::Outcome => state == "completed",
            Brings::Checkpoint(number) => {
                let last: Option<i64> = column(row, "point_number")?;
                last.is_some_and(|last| last >= i64::from(number))
            }
        };
        let ours = there && fence == fence_number(self.fence);
        Ok(if ours { Became::Committed } else { Became::RolledBack })
    }
}
