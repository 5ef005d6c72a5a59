//! One process owns the directory.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::OpenError;
use crate::files::private;

/// The file whose lock is the ownership of the directory; it holds the owner's process id.
const LOCK_FILE: &str = "owner.lock";

/// The lock on a directory; the system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    pub(crate) fn acquire(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join(LOCK_FILE);
        let io = |error| OpenError::io("cannot open the lock file", &path, error);
        let file = private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        Self::lock(file, directory, &path)
    }

    /// The same, and makes no lock file: where there is none, nobody owns the directory.
    pub(crate) fn acquire_if_there(directory: &Path) -> Result<Option<Self>, OpenError> {
        let path = directory.join(LOCK_FILE);
        let io = |error| OpenError::io("cannot open the lock file", &path, error);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Self::lock(file.map_err(io)?, directory, &path).map(Some),
        }
    }

    fn lock(mut file: File, directory: &Path, path: &Path) -> Result<Self, OpenError> {
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim().parse().ok();
                Err(OpenError::InUse { directory: directory.to_owned(), pid })
            }
            Err(TryLockError::Error(error)) => {
                Err(OpenError::io("cannot open the lock file", path, error))
            }
        }
    }

    /// Writes the owner's process id, once the directory is known to be good: a refused one is not
    /// changed.
    pub(crate) fn sign(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        writeln!(self.file, "{}", std::process::id())?;
        self.file.flush()
    }
}
