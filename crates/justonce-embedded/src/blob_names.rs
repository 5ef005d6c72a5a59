//! The names of the storage engine's blob files, made durable.
//!
//! The engine syncs the contents of a blob file, but not the directory that it has made it in. A
//! power cut could take the file away, and with it the records in it: the version of the keyspace
//! that has it is synced, names and all. Blob files are made in two places: while records are taken
//! in, and by compactions. Both sync the directory before there is such a version.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};

use crate::files::sync_directory;

/// The folders of the keyspaces inside the engine's, and of the blob files inside one of those.
const KEYSPACES: &str = "keyspaces";
const BLOBS: &str = "blobs";

/// Syncs the directories of blob files.
#[derive(Debug)]
pub(crate) struct BlobNames {
    keyspaces: PathBuf,
    /// Why a compaction could not.
    failed: OnceLock<String>,
}

impl BlobNames {
    /// Those of an engine's folder.
    pub(crate) fn of(engine: &Path) -> Self {
        Self { keyspaces: engine.join(KEYSPACES), failed: OnceLock::new() }
    }

    /// Makes the names durable of all blob files that there are.
    pub(crate) fn sync(&self) -> io::Result<()> {
        for keyspace in std::fs::read_dir(&self.keyspaces)? {
            match sync_directory(&keyspace?.path().join(BLOBS)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Refuses to go on after a compaction that could not.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(io::Error::other(why.clone())),
        }
    }
}

/// What makes filters for compactions, by the names of keyspaces.
type Assigner = Arc<dyn Fn(&str) -> Option<Arc<dyn Factory>> + Send + Sync>;

/// Compactions that sync these names before their result counts: the engine calls the filter at the
/// end of each, when it has made all its files.
pub(crate) fn synced_by(names: &Arc<BlobNames>) -> Assigner {
    let factory = Arc::new(SyncingFilters(Arc::clone(names)));
    Arc::new(move |_| Some(Arc::<SyncingFilters>::clone(&factory)))
}

struct SyncingFilters(Arc<BlobNames>);

impl Factory for SyncingFilters {
    fn name(&self) -> &'static str {
        "justonce-blob-names"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(SyncingFilter(Arc::clone(&self.0)))
    }
}

struct SyncingFilter(Arc<BlobNames>);

impl CompactionFilter for SyncingFilter {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        Ok(Verdict::Keep)
    }

    fn finish(self: Box<Self>) {
        if let Err(error) = self.0.sync() {
            let why = format!("cannot sync the folder of the blob files: {error}");
            // The first reason counts.
            let _ = self.0.failed.set(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_compaction_that_could_not_sync_nothing_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let names = Arc::new(BlobNames::of(directory.path()));
        std::fs::create_dir_all(directory.path().join("keyspaces/1/blobs")).unwrap();
        std::fs::create_dir_all(directory.path().join("keyspaces/2")).unwrap();
        let compact = || Box::new(SyncingFilter(Arc::clone(&names))).finish();
        compact();
        assert!(names.check().is_ok());
        std::fs::remove_dir_all(directory.path().join("keyspaces")).unwrap();
        compact();
        assert!(names.check().unwrap_err().to_string().contains("cannot sync"));
    }
}
