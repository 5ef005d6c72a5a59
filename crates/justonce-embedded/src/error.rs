//! Why a store could not be opened, and what closing it could not write.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use justonce_core::{StoreError, StoreErrorKind};

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process owns the directory.
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The owner's process id, if it could be read.
        pid: Option<u32>,
    },
    /// A file could not be opened or written.
    Io {
        /// What failed, and on which file.
        message: String,
        /// What the system said.
        source: io::Error,
    },
    /// The storage engine refused.
    Engine {
        /// The directory.
        directory: PathBuf,
        /// What it said.
        message: String,
    },
    /// The records are damaged or incomplete.
    Damaged(StoreError),
}

impl OpenError {
    pub(crate) fn engine(directory: &Path, error: impl fmt::Display) -> Self {
        Self::Engine { directory: directory.to_owned(), message: error.to_string() }
    }

    pub(crate) fn io(what: &str, path: &Path, source: io::Error) -> Self {
        Self::Io { message: format!("{what}: {}", path.display()), source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { directory, pid: Some(pid) } => write!(
                f,
                "{} is in use by process {pid}: one process owns a store. Stop that process, or \
                 choose another directory",
                directory.display()
            ),
            Self::InUse { directory, pid: None } => write!(
                f,
                "{} is in use by another process: one process owns a store. Stop that process, or \
                 choose another directory",
                directory.display()
            ),
            Self::Io { message, source } => write!(f, "{message}: {source}"),
            Self::Engine { directory, message } => {
                write!(f, "the store in {} cannot be opened: {message}", directory.display())
            }
            Self::Damaged(error) => error.fmt(f),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Damaged(error) => Some(error),
            Self::InUse { .. } | Self::Engine { .. } => None,
        }
    }
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Damaged(error) => error,
            other => {
                Self::not_applied(StoreErrorKind::Unavailable, other.to_string()).because(other)
            }
        }
    }
}

/// What could not be written when a store was closed. Whatever was acknowledged as durable is in
/// the log, and the next opening finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseError {
    pub(crate) why: Arc<str>,
    pub(crate) not_written: usize,
}

impl CloseError {
    /// How many claims were only in memory, and are lost: they were begun under `rerun`, and their
    /// operations may begin anew.
    #[must_use]
    pub const fn not_written(&self) -> usize {
        self.not_written
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, not_written } = self;
        write!(
            f,
            "the store was closed after it had stopped: {why}. {not_written} claims that were only \
             in memory are not written; what was acknowledged is in the log, and the next opening \
             finds it"
        )
    }
}

impl Error for CloseError {}
