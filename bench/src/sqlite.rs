//! A peer: SQLite with a write-ahead log and full synchronisation, batched by the same group
//! commit.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use justonce::embedded::commit::{GroupCommit, Sink};
use justonce::{CommitDelay, Key, RecordId, Scope};
use rusqlite::Connection;

use crate::floor::{Sizes, closed};
use crate::load::{Candidate, candidate};

enum Write {
    Claim([u8; 32], Vec<u8>),
    Outcome([u8; 32], Vec<u8>),
}

struct SqliteSink {
    connection: Connection,
}

impl SqliteSink {
    fn write(&mut self, batch: &mut Vec<Write>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut claim = transaction.prepare_cached(
                "INSERT INTO records (id, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?;
            let mut outcome =
                transaction.prepare_cached("UPDATE records SET value = ?2 WHERE id = ?1")?;
            for write in batch.drain(..) {
                match write {
                    Write::Claim(id, value) => claim.execute((id, value))?,
                    Write::Outcome(id, value) => outcome.execute((id, value))?,
                };
            }
        }
        transaction.commit()
    }
}

impl Sink<Write> for SqliteSink {
    fn commit(&mut self, batch: &mut Vec<Write>) -> Result<(), String> {
        self.write(batch).map_err(|error| error.to_string())
    }
}

/// A claim and an outcome an operation, one after the other.
pub(crate) fn sqlite(directory: &Path, callers: u64, sizes: Sizes) -> Result<Candidate> {
    let connection = Connection::open(directory.join("peer.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute(
        "CREATE TABLE records (id BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        (),
    )?;
    let commits = Arc::new(GroupCommit::start(SqliteSink { connection }, CommitDelay::none())?);
    Ok(candidate(callers, move |caller, number| {
        let commits = Arc::clone(&commits);
        async move {
            let key = Key::client(format!("order-{caller}-{number}"))?;
            let id = *RecordId::of(&Scope::global(), &key).as_bytes();
            let claim = Write::Claim(id, vec![b'x'; sizes.claim]);
            let ticket = commits.enqueue(claim).map_err(|_| closed())?;
            ticket.durable().await.map_err(|why| anyhow!("{why}"))?;
            let outcome = Write::Outcome(id, vec![b'x'; sizes.outcome]);
            let ticket = commits.enqueue(outcome).map_err(|_| closed())?;
            ticket.durable().await.map_err(|why| anyhow!("{why}"))
        }
    }))
}
