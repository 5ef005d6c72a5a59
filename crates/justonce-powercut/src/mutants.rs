//! What must not be missing: without any of these syncs the check must find a loss.
//!
//! `cargo xtask powercut --mutants` also changes the sources of the store, and builds them anew.

use std::path::{Component, Path};

/// Syncs that are left out of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Of the write-ahead log's files.
    Log,
    /// Of the directories that the store itself syncs: all but the storage engine's.
    Directories,
    /// Of the storage engine's files.
    Engine,
    /// Of the storage engine's directories.
    EngineDirectories,
    /// Of the storage engine's journals.
    Journals,
    /// Of the storage engine's tables and blob files.
    Tables,
}

impl Dropped {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Log,
        Self::Directories,
        Self::Engine,
        Self::EngineDirectories,
        Self::Journals,
        Self::Tables,
    ];

    /// What is left out, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "the syncs of the log's files",
            Self::Directories => "the syncs of the store's directories",
            Self::Engine => "the syncs of the storage engine's files",
            Self::EngineDirectories => "the syncs of the storage engine's directories",
            Self::Journals => "the syncs of the storage engine's journals",
            Self::Tables => "the syncs of the storage engine's tables and blob files",
        }
    }

    /// Whether a sync of the file or directory at this path is left out.
    #[must_use]
    pub fn drops(self, path: &Path, is_directory: bool) -> bool {
        let is_engine = has(path, "records") || has(path, "records.new");
        let ends = |end: &str| path.extension().is_some_and(|extension| extension == end);
        match self {
            Self::Log => ends("wal"),
            Self::Directories => is_directory && !is_engine,
            Self::Engine => !is_directory && is_engine,
            Self::EngineDirectories => is_directory && is_engine,
            Self::Journals => ends("jnl"),
            Self::Tables => !is_directory && (has(path, "tables") || has(path, "blobs")),
        }
    }
}

fn has(path: &Path, name: &str) -> bool {
    path.components().any(|part| part == Component::Normal(name.as_ref()))
}
