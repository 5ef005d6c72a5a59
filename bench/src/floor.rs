//! The floor: the raw storage engine behind the same group commit, writing the same bytes.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
};
use justonce::embedded::commit::{GroupCommit, Sink};
use justonce::{CommitDelay, Key, RecordId, Scope};

use crate::load::{Candidate, candidate};

/// The bytes that one operation writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) claim: usize,
    pub(crate) outcome: usize,
}

type Put = ([u8; 32], Vec<u8>);

struct RawSink {
    database: Database,
    records: Keyspace,
}

impl Sink<Put> for RawSink {
    fn commit(&mut self, batch: &mut Vec<Put>) -> Result<(), String> {
        let mut write = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in batch.drain(..) {
            write.insert(&self.records, key.as_slice(), value);
        }
        write.commit().map_err(|error| error.to_string())
    }
}

/// Two durable puts an operation, one after the other.
pub(crate) fn raw(directory: &Path, callers: u64, sizes: Sizes) -> Result<Candidate> {
    let database = Database::builder(directory)
        .max_journaling_size(64 * 1024 * 1024)
        .manual_journal_persist(true)
        .open()?;
    // Laid out as the store lays out its records.
    let apart =
        KvSeparationOptions::default().separation_threshold(256).compression(CompressionType::None);
    let options = KeyspaceCreateOptions::default()
        .max_memtable_size(16 * 1024 * 1024)
        .with_kv_separation(Some(apart));
    let records = database.keyspace("records", || options)?;
    let sink = RawSink { database, records };
    let commits = Arc::new(GroupCommit::start(sink, CommitDelay::adaptive())?);
    Ok(candidate(callers, move |caller, number| {
        let commits = Arc::clone(&commits);
        async move {
            let key = Key::client(format!("order-{caller}-{number}"))?;
            let id = *RecordId::of(&Scope::global(), &key).as_bytes();
            for size in [sizes.claim, sizes.outcome] {
                let ticket = commits.enqueue((id, vec![b'x'; size])).map_err(|_| closed())?;
                ticket.durable().await.map_err(|why| anyhow!("{why}"))?;
            }
            Ok(())
        }
    }))
}

pub(crate) fn closed() -> anyhow::Error {
    anyhow!("the group commit is closed")
}
