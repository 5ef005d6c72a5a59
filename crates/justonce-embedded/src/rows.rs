//! Names of the caller's own rows, and the rows on their way to the storage engine.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::commit::Ticket;

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
