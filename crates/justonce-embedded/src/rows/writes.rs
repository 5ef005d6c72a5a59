//! What a phase writes.

use std::collections::BTreeMap;

use justonce_core::StoreResult;

use super::name::RowName;
use crate::open::Inner;

/// One row as it is written; nothing stands for one that is removed.
#[derive(Debug)]
pub(crate) struct RowWrite {
    pub(crate) name: RowName,
    pub(crate) value: Option<Vec<u8>>,
}

/// The rows that one phase or handler reads and writes. Nobody else writes meanwhile.
#[derive(Debug)]
pub struct RowWrites<'a> {
    inner: &'a Inner,
    writes: BTreeMap<RowName, Option<Vec<u8>>>,
}

impl<'a> RowWrites<'a> {
    pub(super) const fn new(inner: &'a Inner) -> Self {
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

    /// Writes a row, with the recovery point or the outcome.
    pub fn put(&mut self, row: RowName, value: impl Into<Vec<u8>>) {
        self.writes.insert(row, Some(value.into()));
    }

    /// Removes a row, with the recovery point or the outcome.
    pub fn remove(&mut self, row: RowName) {
        self.writes.insert(row, None);
    }

    pub(super) fn into_writes(self) -> Vec<RowWrite> {
        self.writes.into_iter().map(|(name, value)| RowWrite { name, value }).collect()
    }
}
