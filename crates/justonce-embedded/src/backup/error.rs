//! Why there is no backup, or no store from one.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// Why a backup, a check or a restore did not succeed.
#[derive(Debug)]
#[non_exhaustive]
pub enum BackupError {
    /// Another backup of the same store is being made.
    Busy,
    /// The store was closed, or has stopped after an error.
    Stopped(String),
    /// What is there must not be written over.
    Occupied {
        /// The directory.
        directory: PathBuf,
        /// What is in it.
        what: &'static str,
    },
    /// This is no backup, or one that was not finished or has changed since.
    NotABackup {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The clock and the backup do not agree.
    Clock(String),
    /// A file could not be read or written.
    Io {
        /// What failed, and on which file.
        message: String,
        /// What the system said.
        source: io::Error,
    },
    /// The store cannot be opened.
    Store(OpenError),
}

impl BackupError {
    pub(super) fn io(what: &str, path: &Path, source: io::Error) -> Self {
        Self::Io { message: format!("{what} {}", path.display()), source }
    }

    pub(super) fn not_a_backup(directory: &Path, what: impl Into<String>) -> Self {
        Self::NotABackup { directory: directory.to_owned(), what: what.into() }
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another backup of this store is being made: wait for it"),
            Self::Stopped(why) => write!(f, "the store has stopped: {why}"),
            Self::Occupied { directory, what } => write!(
                f,
                "{} has {what} in it, and nothing is written over: choose a directory that is \
                 empty or does not exist",
                directory.display()
            ),
            Self::NotABackup { directory, what } => {
                write!(f, "{} cannot be used as a backup: {what}", directory.display())
            }
            Self::Clock(what) => f.write_str(what),
            Self::Io { message, source } => write!(f, "{message}: {source}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// The messages have their causes in them.
impl Error for BackupError {}

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        Self::Store(error)
    }
}
