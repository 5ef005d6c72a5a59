//! Rows of the caller's own, written in one batch with a checkpoint or an outcome.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use justonce_core::engine::Context;
use justonce_core::{Action, Answer, Checkpoint, HandlerError, Outcome, RecordId, StoreResult};

use crate::commit::Ticket;
use crate::open::{EmbeddedStore, Inner};
use crate::records::durable;
use crate::step::StepResult;

/// The longest name of a table, in bytes.
const MAX_TABLE_BYTES: usize = 64;
/// The longest key of a row, in bytes.
const MAX_KEY_BYTES: usize = 1024;
/// Between the table and the key: no table's name has it.
const BETWEEN: u8 = 0;

/// A row's table and key, as they lie on disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowName(Box<[u8]>);

impl RowName {
    /// The row with this key in this table. Tables need not be made.
    ///
    /// # Errors
    ///
    /// If the table's name is empty, over 64 bytes, or has anything but `a-z`, `0-9`, `_` and `-`;
    /// or if the key is over 1024 bytes.
    pub fn new(table: &str, key: impl AsRef<[u8]>) -> Result<Self, RowNameError> {
        let key = key.as_ref();
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if table.is_empty() || table.len() > MAX_TABLE_BYTES || !table.bytes().all(plain) {
            return Err(RowNameError::Table(table.to_owned()));
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(RowNameError::Key(key.len()));
        }
        let bytes = table.bytes().chain([BETWEEN]).chain(key.iter().copied());
        Ok(Self(bytes.collect()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A name that was written before.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowName({})", self.0.escape_ascii())
    }
}

/// Why a row cannot be called so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowNameError {
    /// This is no name for a table.
    Table(String),
    /// The key has this many bytes, which are too many.
    Key(usize),
}

impl fmt::Display for RowNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(name) => write!(
                f,
                "{name:?} is no name for a table: use up to {MAX_TABLE_BYTES} of a-z, 0-9, _ and -"
            ),
            Self::Key(bytes) => {
                write!(f, "a row's key has at most {MAX_KEY_BYTES} bytes, not {bytes}")
            }
        }
    }
}

impl Error for RowNameError {}

/// One row as it is written; nothing stands for one that is removed.
#[derive(Debug)]
pub(crate) struct RowWrite {
    pub(crate) name: RowName,
    pub(crate) value: Option<Vec<u8>>,
}

/// The rows that one phase or handler reads and writes. There is one writer at a time.
#[derive(Debug)]
pub struct RowWrites<'a> {
    inner: &'a Inner,
    writes: BTreeMap<RowName, Option<Vec<u8>>>,
}

impl<'a> RowWrites<'a> {
    const fn new(inner: &'a Inner) -> Self {
        Self { inner, writes: BTreeMap::new() }
    }

    /// A row, as it is or as it was written here.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn get(&self, row: &RowName) -> StoreResult<Option<Vec<u8>>> {
        match self.writes.get(row) {
            Some(value) => Ok(value.clone()),
            None => self.inner.row(row).map(|(value, _)| value),
        }
    }

    /// Writes a row, with the checkpoint or the outcome.
    pub fn put(&mut self, row: RowName, value: impl Into<Vec<u8>>) {
        self.writes.insert(row, Some(value.into()));
    }

    /// Removes a row, with the checkpoint or the outcome.
    pub fn remove(&mut self, row: RowName) {
        self.writes.insert(row, None);
    }

    fn into_writes(self) -> Vec<RowWrite> {
        self.writes.into_iter().map(|(name, value)| RowWrite { name, value }).collect()
    }
}

impl EmbeddedStore {
    /// A row of yours, once it is durable. Rows lie beside the records, and are written with
    /// [`checkpoint_with`](Self::checkpoint_with) and [`outcome_with`](Self::outcome_with).
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub async fn row(&self, row: &RowName) -> StoreResult<Option<Vec<u8>>> {
        let (value, pending) = self.0.row(row)?;
        if let Some(ticket) = pending {
            durable(&ticket).await?;
        }
        Ok(value)
    }

    /// Writes rows and saves a checkpoint with them: both are durable, or neither.
    /// A resumed operation finds either nothing of it, or all of it with the checkpoint.
    ///
    /// The writer returns its result and the point, from [`Context::point`]; with the phases of
    /// `justonce-saga` from `Within::point`. Only one writer is at work at a time, so keep it
    /// short; it cannot wait for anything.
    ///
    /// ```
    /// use justonce_core::{Engine, HandlerError, Key, OnLapsed, Operation, Outcome, Policy, Scope};
    /// use justonce_embedded::{EmbeddedStore, RowName};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let store = Arc::new(EmbeddedStore::open(&path)?);
    /// let engine = Engine::builder_shared(store.clone()).build();
    /// let policy = Policy::builder().on_lapsed(OnLapsed::Resume).build()?;
    /// let operation = Operation::without_fingerprint(Scope::global(), Key::client("order-17")?);
    /// let operation = operation.with_policy(policy);
    /// let room = RowName::new("rooms", "7")?;
    /// engine
    ///     .run(&operation, async |context| {
    ///         let write = |rows: &mut justonce_embedded::RowWrites<'_>| {
    ///             rows.put(room.clone(), "order-17");
    ///             let point = context.point("reserved", "7");
    ///             Ok(((), point.map_err(|_| HandlerError::Unknown)?))
    ///         };
    ///         store.checkpoint_with(&context, write).await?;
    ///         Ok(Outcome::bytes("room 7"))
    ///     })
    ///     .await?;
    /// assert_eq!(store.row(&room).await?.as_deref(), Some(&b"order-17"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The engine must be on this store, or on a decorator around it.
    ///
    /// # Errors
    ///
    /// What the writer says, and if the claim was lost or the store has stopped. Then nothing
    /// was written, or it is unknown; either way the next attempt finds out. Also if there
    /// are rows and the point is stored already, or a later one is: a step that changes nothing
    /// takes no rows along, and none were written.
    pub async fn checkpoint_with<T>(
        &self,
        context: &Context,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<(T, Checkpoint), HandlerError>,
    ) -> Result<T, HandlerError> {
        self.write_with(context, |rows| {
            let (result, point) = write(rows)?;
            Ok((result, Action::Checkpoint(context.fence(), point)))
        })
        .await
    }

    /// Writes rows and completes the operation with them: both are durable, or neither. A handler
    /// that ends with this takes effect exactly once. Return what this returns.
    ///
    /// # Errors
    ///
    /// As of [`checkpoint_with`](Self::checkpoint_with); also if there are rows and the same
    /// outcome is stored already.
    pub async fn outcome_with(
        &self,
        context: &Context,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<Outcome, HandlerError>,
    ) -> Result<Outcome, HandlerError> {
        self.write_with(context, |rows| {
            let outcome = write(rows)?;
            Ok((outcome.clone(), Action::Complete(context.fence(), outcome)))
        })
        .await
    }

    async fn write_with<T>(
        &self,
        context: &Context,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<(T, Action), HandlerError>,
    ) -> Result<T, HandlerError> {
        let (result, pending) = self.0.write_rows(context.operation().id(), write)?;
        if let Some(ticket) = pending {
            durable(&ticket).await.map_err(|_| HandlerError::Unknown)?;
        }
        Ok(result)
    }
}

impl Inner {
    /// A row, and the write that must be durable before it is returned.
    pub(crate) fn row(&self, row: &RowName) -> StoreResult<(Option<Vec<u8>>, Option<Ticket>)> {
        // First what is on its way: it leaves there only once the engine has it.
        if let Some(kept) = self.state.rows.get(row) {
            return Ok((kept.value, Some(kept.ticket)));
        }
        Ok((self.state.disk.row(row)?, None))
    }

    fn write_rows<T>(
        &self,
        id: RecordId,
        write: impl FnOnce(&mut RowWrites<'_>) -> Result<(T, Action), HandlerError>,
    ) -> Result<(T, Option<Ticket>), HandlerError> {
        let _alone = self.row_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows = RowWrites::new(self);
        let (result, action) = write(&mut rows)?;
        let tried = self.stepper().attempt_with(id, &action, rows.into_writes());
        // The operation as a whole may be half done: its key must not be given back.
        match tried.map_err(|_| HandlerError::Unknown)? {
            StepResult::Decided(Answer::Applied, pending) => Ok((result, pending)),
            // The engine finds out the state itself.
            StepResult::Decided(..) | StepResult::NoFences => Err(HandlerError::Unknown),
        }
    }
}

/// The rows on their way to the engine, by name.
#[derive(Debug, Default)]
pub(crate) struct PendingRows(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    rows: BTreeMap<RowName, PendingRow>,
    changes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PendingRow {
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) ticket: Ticket,
    change: u64,
}

impl PendingRows {
    pub(crate) fn get(&self, row: &RowName) -> Option<PendingRow> {
        self.pending().rows.get(row).cloned()
    }

    /// Keeps rows from the moment they are queued: the lock is held meanwhile, so they are not
    /// removed before they are kept.
    pub(crate) fn queue<E>(
        &self,
        rows: Vec<RowWrite>,
        enqueue: impl FnOnce(Vec<RowWrite>, u64) -> Result<Ticket, E>,
    ) -> Result<Ticket, E> {
        let mut pending = self.pending();
        pending.changes += 1;
        let change = pending.changes;
        let kept: Vec<_> = rows.iter().map(|row| (row.name.clone(), row.value.clone())).collect();
        let ticket = enqueue(rows, change)?;
        for (name, value) in kept {
            pending.rows.insert(name, PendingRow { value, ticket: ticket.clone(), change });
        }
        Ok(ticket)
    }

    /// Removes rows that the engine has, unless they were written again.
    pub(crate) fn remove_applied(&self, rows: &[RowWrite], change: u64) {
        if rows.is_empty() {
            return;
        }
        let mut pending = self.pending();
        for RowWrite { name, .. } in rows {
            if pending.rows.get(name).is_some_and(|kept| kept.change == change) {
                pending.rows.remove(name);
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_tables_never_meet() {
        let name = |table, key: &[u8]| RowName::new(table, key).unwrap();
        assert_ne!(name("a", b"b"), name("ab", b""));
        assert_ne!(name("a", b"\0b"), name("a", b"b"));
        assert!(name("a", b"\xff") < name("b", b""));
    }

    #[test]
    fn bad_names_are_refused_with_a_reason() {
        for table in ["", "Rooms", "a b", "a\0", &"x".repeat(65)] {
            let said = RowName::new(table, b"1").unwrap_err().to_string();
            assert!(said.contains("no name for a table"), "{said}");
        }
        let said = RowName::new("rooms", [0; 1025]).unwrap_err().to_string();
        assert!(said.contains("1024"), "{said}");
    }
}
