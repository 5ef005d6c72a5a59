//! The list of files, written for the last time when a store is closed.

use std::sync::{Mutex, PoisonError};

use crate::check::ManifestWriter;

/// Writes the list of files when it is dropped: once the storage engine has ended.
#[derive(Default)]
pub(crate) struct RefreshOnDrop(Mutex<Option<ManifestWriter>>);

impl RefreshOnDrop {
    pub(crate) fn set(&self, writer: Option<ManifestWriter>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = writer;
    }
}

impl Drop for RefreshOnDrop {
    fn drop(&mut self) {
        let writer = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        writer.iter_mut().for_each(ManifestWriter::refresh_if_possible);
    }
}
