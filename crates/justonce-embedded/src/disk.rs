//! The storage engine, in one file and [`blob_names`]: nothing of it shows outside.
//!
//! Four keyspaces: the records are taken in first, then the rest is written in one atomic batch.
//! What a crash leaves between the two is taken in once more.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `records` | record name | the record or tombstone |
//! | `expiry` | end of the retention, batch number | the names of the records that end then |
//! | `log` | batch number | one row a batch: what it left unsettled, and that none is missing |
//! | `rows` | table, key | the callers' own rows |
//!
//! The batches here are not those of the write-ahead log: one holds what many of those left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use fjall::{
    CompressionType, Database, DatabaseBuilder, Keyspace, KeyspaceCreateOptions,
    KvSeparationOptions, LsmError, PersistMode,
};
use justonce_core::store::Stored;
use justonce_core::{RecordId, StoreError, StoreErrorKind, StoreResult, Timestamp, codec};

use crate::blob_names::{self, BlobNames};
use crate::files::{sync_directories, sync_directory};
use crate::journal::{BatchRow, KEEP_ROWS};
use crate::restored::Losses;
use crate::rows::RowName;
use crate::write::ExpiryRow;

/// The journals together take at most this much: it bounds how long reopening takes.
const MAX_JOURNAL_BYTES: u64 = 64 * 1024 * 1024;
/// What a keyspace gathers in memory before it becomes a table on disk.
const MEMTABLE_BYTES: u64 = 16 * 1024 * 1024;

/// What the engine may keep in memory while it makes a database.
const CREATING_CACHE_BYTES: u64 = 1024 * 1024;

/// Records from this size on lie in files of their own, beside the tree that finds them: the names
/// are random, so the tree is rewritten all the time, and its values would be with it. Claims are
/// smaller, and gone before the tree is written.
const APART_FROM_BYTES: u32 = 256;

/// A row of the expiry index, with the names in it.
pub(crate) type Expiring = (ExpiryRow, Vec<RecordId>);

/// What goes with a batch of records.
pub(crate) struct With {
    /// Rows of the expiry index that have been worked through.
    pub(crate) swept: Vec<ExpiryRow>,
    /// The names of what ends at a moment.
    pub(crate) expiring: Vec<(u64, Vec<u8>)>,
    /// The callers' own rows; nothing stands for one that goes.
    pub(crate) rows: BTreeMap<RowName, Option<Vec<u8>>>,
}

/// The open database.
pub(crate) struct Disk {
    database: Database,
    records: Keyspace,
    expiry: Keyspace,
    log: Keyspace,
    rows: Keyspace,
    blob_names: Arc<BlobNames>,
}

/// Where a keyspace says how far it is: behind all rows of the expiry index, and before all of the
/// callers' rows.
const EXPIRY_MARK: [u8; 17] = [u8::MAX; 17];
const ROWS_MARK: [u8; 1] = [0];
/// When the store's time was brought back to the clock; beside that mark.
const CAME_BACK: [u8; 2] = [0, 1];
/// What the store may have lost when it was restored from backups; beside that mark.
const LOST: [u8; 2] = [0, 2];

/// Why a copy cannot be opened.
pub(crate) enum Gone {
    /// The engine does not know this keyspace.
    Keyspace(&'static str),
    /// A batch of a journal is not what it must be.
    Journal(fjall::Error),
    /// The engine refuses.
    Engine(fjall::Error),
}

impl From<fjall::Error> for Gone {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::JournalRecovery(_) => Self::Journal(error),
            error => Self::Engine(error),
        }
    }
}

impl Disk {
    /// Makes a database: it is there whole, or not at all. `made` is where it is made.
    pub(crate) fn create(directory: &Path, made: &Path) -> Result<(), fjall::Error> {
        drop(Self::open(made, CREATING_CACHE_BYTES)?);
        // The engine does not sync all that it makes.
        sync_directories(made)?;
        std::fs::rename(made, directory)?;
        if let Some(parent) = directory.parent() {
            sync_directory(parent)?;
        }
        Ok(())
    }

    pub(crate) fn open(directory: &Path, cache_bytes: u64) -> Result<Self, fjall::Error> {
        Self::built(directory, builder(directory, cache_bytes))
    }

    /// The same without anything that works in the background: nothing is ever put in order.
    pub(crate) fn open_without_workers(
        directory: &Path,
        cache_bytes: u64,
    ) -> Result<Self, fjall::Error> {
        Self::built(directory, builder(directory, cache_bytes).worker_threads_unchecked(0))
    }

    fn built(directory: &Path, builder: DatabaseBuilder<Database>) -> Result<Self, fjall::Error> {
        let blob_names = Arc::new(BlobNames::of(directory));
        let builder = builder.with_compaction_filter_factories(blob_names::synced_by(&blob_names));
        Self::with(builder.open()?, blob_names)
    }

    /// Opens a copy, without anything that works in the background.
    pub(crate) fn open_copy(directory: &Path, cache_bytes: u64) -> Result<Self, Gone> {
        let database = builder(directory, cache_bytes).worker_threads_unchecked(0).open()?;
        // The engine makes a keyspace that is gone anew. The callers' rows came later than the
        // others.
        for name in ["records", "expiry", "log"] {
            if !database.keyspace_exists(name) {
                return Err(Gone::Keyspace(name));
            }
        }
        // Nothing is written.
        Ok(Self::with(database, Arc::new(BlobNames::of(directory)))?)
    }

    fn with(database: Database, blob_names: Arc<BlobNames>) -> Result<Self, fjall::Error> {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        Ok(Self {
            records: database.keyspace("records", || {
                options().with_kv_separation(Some(
                    // What is worth compressing comes compressed.
                    KvSeparationOptions::default()
                        .separation_threshold(APART_FROM_BYTES)
                        .compression(CompressionType::None),
                ))
            })?,
            expiry: database.keyspace("expiry", options)?,
            log: database.keyspace("log", options)?,
            rows: database.keyspace("rows", options)?,
            database,
            blob_names,
        })
    }

    /// How far the index and the callers' rows are: the number of a batch, if there was one since
    /// keyspaces say so.
    pub(crate) fn marks(&self) -> StoreResult<[Option<u64>; 2]> {
        let read = |keyspace: &Keyspace, key: &[u8]| -> StoreResult<Option<u64>> {
            let mark = keyspace.get(key).map_err(|e| unreadable(&e))?;
            Ok(mark.and_then(|mark| <[u8; 8]>::try_from(&*mark).ok()).map(u64::from_be_bytes))
        };
        Ok([read(&self.expiry, &EXPIRY_MARK)?, read(&self.rows, &ROWS_MARK)?])
    }

    /// Writes the marks of a store that has none yet.
    pub(crate) fn begin_marks(&self, number: u64) -> Result<(), fjall::Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        batch.insert(&self.expiry, EXPIRY_MARK.as_slice(), number.to_be_bytes().as_slice());
        batch.insert(&self.rows, ROWS_MARK.as_slice(), number.to_be_bytes().as_slice());
        batch.commit()
    }

    /// When the store's time was last brought back to the clock; zero if it never was.
    pub(crate) fn clock_reset_at(&self) -> StoreResult<Timestamp> {
        let found = self.rows.get(CAME_BACK).map_err(|e| unreadable(&e))?;
        let Some(bytes) = found else { return Ok(Timestamp::ZERO) };
        let bytes = <[u8; 8]>::try_from(&*bytes).map_err(|_| foreign("rows"))?;
        Ok(Timestamp::from_millis(u64::from_be_bytes(bytes)))
    }

    /// The store's time is brought back to the clock.
    pub(crate) fn set_clock_reset_at(&self, now: Timestamp) -> Result<(), fjall::Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        let bytes = now.as_millis().to_be_bytes();
        batch.insert(&self.rows, CAME_BACK.as_slice(), bytes.as_slice());
        batch.commit()
    }

    /// What the store may have lost when it was restored from backups.
    pub(crate) fn losses(&self) -> StoreResult<Losses> {
        let found = self.rows.get(LOST).map_err(|e| unreadable(&e))?;
        let Some(bytes) = found else { return Ok(Losses::default()) };
        Losses::from_bytes(&bytes).ok_or_else(|| foreign("rows"))
    }

    /// Writes what the store may have lost.
    pub(crate) fn set_losses(&self, losses: &Losses) -> Result<(), fjall::Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        batch.insert(&self.rows, LOST.as_slice(), losses.to_bytes());
        batch.commit()
    }

    /// Reads all of the callers' rows; how many there are.
    pub(crate) fn count_rows(&self) -> StoreResult<u64> {
        let mut count = 0;
        for row in self.rows.iter() {
            let (name, _) = row.into_inner().map_err(|e| unreadable(&e))?;
            count += u64::from(!name.starts_with(&ROWS_MARK));
        }
        Ok(count)
    }

    /// A record.
    pub(crate) fn record(&self, id: &RecordId) -> StoreResult<Option<(Stored, usize)>> {
        let Some(bytes) = self.records.get(id.as_bytes()).map_err(|e| unreadable(&e))? else {
            return Ok(None);
        };
        Ok(Some((codec::decode(id, &bytes)?, bytes.len())))
    }

    /// A row of the caller's own.
    pub(crate) fn row(&self, name: &RowName) -> StoreResult<Option<Vec<u8>>> {
        let found = self.rows.get(name.as_bytes()).map_err(|e| unreadable(&e))?;
        Ok(found.map(|bytes| bytes.to_vec()))
    }

    /// Records behind `after`, in order; inside, what is wrong with one that cannot be read. After
    /// an error outside, the names that follow cannot be told either.
    pub(crate) fn records_after(
        &self,
        after: Option<&RecordId>,
    ) -> impl Iterator<Item = StoreResult<(RecordId, StoreResult<Stored>)>> + use<> {
        let range = match after {
            Some(id) => {
                let start = Bound::Excluded(id.as_bytes().as_slice());
                self.records.range::<&[u8], _>((start, Bound::Unbounded))
            }
            None => self.records.iter(),
        };
        range.map(decoded)
    }

    /// Rows of the expiry index that are due, from one on; nothing for one that is not ours.
    pub(crate) fn expired(
        &self,
        from: ExpiryRow,
        now: Timestamp,
    ) -> impl Iterator<Item = StoreResult<Option<Expiring>>> + use<> {
        let end = now.as_millis().saturating_add(1).to_be_bytes();
        // A clock that was set back may have left the start behind the end.
        let start = from.as_slice().min(&end);
        self.expiry.range(start..end.as_slice()).map(|row| {
            let (key, ids) = row.into_inner().map_err(|e| unreadable(&e))?;
            let (ids, rest) = ids.as_chunks::<32>();
            let key = ExpiryRow::try_from(&*key).ok().filter(|_| rest.is_empty());
            let ids = ids.iter().map(|id| RecordId::from_bytes(*id)).collect();
            Ok(key.map(|key| (key, ids)))
        })
    }

    /// Every row of the log, oldest first.
    pub(crate) fn log(&self) -> impl Iterator<Item = StoreResult<(u64, BatchRow)>> + use<> {
        self.log.iter().map(|row| {
            let (key, value) = row.into_inner().map_err(|e| unreadable(&e))?;
            let key = <[u8; 8]>::try_from(&*key).map_err(|_| foreign("log"))?;
            let number = u64::from_be_bytes(key);
            let row = BatchRow::from_bytes(number, &value).ok_or_else(|| foreign("log"))?;
            Ok((number, row))
        })
    }

    /// Takes records in, in the order of their names, each once; nothing stands for one that goes.
    /// They are durable afterwards.
    ///
    /// They become a table at once, without the engine's journal and its table in memory: the
    /// write-ahead log and the table of the store are that already.
    pub(crate) fn ingest(
        &self,
        records: impl Iterator<Item = (RecordId, Option<Vec<u8>>)>,
    ) -> Result<(), fjall::Error> {
        self.blob_names.check()?;
        let mut ingestion = self.records.start_ingestion()?;
        for (id, bytes) in records {
            match bytes {
                Some(bytes) => ingestion.write(id.as_bytes().as_slice(), bytes)?,
                None => ingestion.write_tombstone(id.as_bytes().as_slice())?,
            }
        }
        // The end of it makes a version durable that has them.
        self.blob_names.sync()?;
        ingestion.finish()
    }

    /// Writes and syncs what goes with a batch of records that was taken in.
    pub(crate) fn write(
        &self,
        number: u64,
        row: &BatchRow,
        with: With,
    ) -> Result<(), fjall::Error> {
        let With { swept, expiring, rows } = with;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for key in swept {
            batch.remove(&self.expiry, key.as_slice());
        }
        for (moment, ids) in expiring {
            let mut key = [0; 16];
            let halves = moment.to_be_bytes().into_iter().chain(number.to_be_bytes());
            for (to, from) in key.iter_mut().zip(halves) {
                *to = from;
            }
            batch.insert(&self.expiry, key.as_slice(), ids);
        }
        for (name, value) in rows {
            match value {
                Some(value) => batch.insert(&self.rows, name.as_bytes(), value),
                None => batch.remove(&self.rows, name.as_bytes()),
            }
        }
        // One journal for all: a keyspace that is behind the log shows that it has lost something.
        batch.insert(&self.expiry, EXPIRY_MARK.as_slice(), number.to_be_bytes().as_slice());
        batch.insert(&self.rows, ROWS_MARK.as_slice(), number.to_be_bytes().as_slice());
        batch.insert(&self.log, number.to_be_bytes().as_slice(), row.to_bytes());
        if let Some(old) = number.checked_sub(KEEP_ROWS) {
            batch.remove(&self.log, old.to_be_bytes().as_slice());
        }
        batch.commit()
    }

    /// How much disk everything takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or_default()
    }
}

fn builder(directory: &Path, cache_bytes: u64) -> DatabaseBuilder<Database> {
    Database::builder(directory)
        .cache_size(cache_bytes)
        .max_journaling_size(MAX_JOURNAL_BYTES)
        .manual_journal_persist(true)
}

/// The name of a row is known also where its value cannot be read.
fn decoded(row: fjall::Guard) -> StoreResult<(RecordId, StoreResult<Stored>)> {
    let name = RefCell::new(None);
    let read = row.into_inner_if(|key| {
        name.replace(<[u8; 32]>::try_from(&**key).ok());
        true
    });
    let id = match (name.into_inner(), &read) {
        (Some(id), _) => RecordId::from_bytes(id),
        (None, Err(error)) => return Err(unreadable(error)),
        (None, Ok(_)) => return Err(foreign("record")),
    };
    let stored = match read {
        Ok((_, bytes)) => codec::decode(&id, &bytes.unwrap_or_default()).map_err(StoreError::from),
        Err(error) => Err(unreadable(&error)),
    };
    Ok((id, stored))
}

fn unreadable(error: &fjall::Error) -> StoreError {
    let kind = if is_damage(error) { StoreErrorKind::Damaged } else { StoreErrorKind::Stopped };
    StoreError::not_applied(kind, format!("the embedded store cannot be read: {error}"))
}

/// Whether a file does not hold what it must; else the system could not read it.
fn is_damage(error: &fjall::Error) -> bool {
    let cut_off = |error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
    match error {
        fjall::Error::Storage(LsmError::Io(error)) | fjall::Error::Io(error) => cut_off(error),
        fjall::Error::Storage(_) => true,
        fjall::Error::Decompress(_)
        | fjall::Error::InvalidTrailer
        | fjall::Error::InvalidTag(_)
        | fjall::Error::InvalidVersion(_) => true,
        _ => false,
    }
}

fn foreign(what: &str) -> StoreError {
    let message = format!("a row of the {what} keyspace was not written by Justonce");
    StoreError::not_applied(StoreErrorKind::Damaged, message)
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}
