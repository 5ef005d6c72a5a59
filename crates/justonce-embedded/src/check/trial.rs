//! The storage engine opens a copy of its files first.
//!
//! What it makes of journals only the engine can say, and it changes files while it finds out. So
//! it gets a folder in which the small files and the journals are copies, and tables and blob files
//! are links to the real ones, which it only reads.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use justonce_core::StoreError;

use super::torn::TornEnd;
use crate::disk::{Disk, Gone};
use crate::files::{create_folder, create_private};
use crate::journal::{self, Recovered};

/// The folder of the copy inside the store's directory. One that a crash left is removed.
const TRIAL: &str = "trial";
/// What the engine may keep in memory while it tries.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// How much is copied at once. The engine makes journals larger than what is in them: parts
/// without anything are not written.
const COPIED_BYTES: usize = 256 * 1024;
/// What is said of an engine that panicked.
const PANICKED: &str = "the storage engine panicked";

/// What the engine would find.
pub(crate) struct Tried {
    pub(crate) log: Recovered,
    /// How far the keyspaces are that share a journal with the log: not as far as it means that
    /// the journal is damaged. Nothing in stores of earlier releases.
    pub(crate) marks: [Option<u64>; 2],
    /// What had to be cut off first.
    pub(crate) torn: Option<TornEnd>,
}

/// Opens a copy of the engine's folder.
///
/// # Errors
///
/// What the engine said, or that it panicked.
pub(super) fn open(directory: &Path, engine: &Path) -> io::Result<Result<Tried, String>> {
    let _ = remove(directory);
    try_in(directory.join(TRIAL), engine, |_, tried| Ok(tried))
}

/// Opens a copy of the engine's folder at a place, and lets `look` at it. The copy is removed.
///
/// # Errors
///
/// If there is no copy; inside, what the engine or `look` said, or that the engine panicked.
pub(crate) fn try_in<T>(
    place: PathBuf,
    engine: &Path,
    look: impl FnOnce(&Disk, Tried) -> Result<T, String>,
) -> io::Result<Result<T, String>> {
    let folder = Removed(place);
    create_folder(&folder.0)?;
    copy(&engine.canonicalize()?, &folder.0)?;
    // Its lock is empty, and made anew where it is lost.
    create_private(&folder.0.join("lock"))?;
    // The engine asserts more than it checks.
    let try_once = || {
        let tried = catch_unwind(AssertUnwindSafe(|| try_open(&folder.0)));
        tried.unwrap_or_else(|_| Err(Refused::Other(PANICKED.into())))
    };
    let mut tried = try_once();
    if let Err(Refused::Journal(_)) = tried
        && let Some(torn) = TornEnd::find(&folder.0)?
    {
        torn.cut_off(&folder.0)?;
        tried = try_once().map(|(disk, tried)| (disk, Tried { torn: Some(torn), ..tried }));
    }
    let tried = tried.map_err(|(Refused::Journal(why) | Refused::Other(why))| why);
    Ok(tried.and_then(|(disk, tried)| {
        let looked = catch_unwind(AssertUnwindSafe(move || look(&disk, tried)));
        looked.unwrap_or_else(|_| Err(PANICKED.into()))
    }))
}

/// What the engine said.
enum Refused {
    /// A batch of a journal is not what it must be.
    Journal(String),
    Other(String),
}

/// Removes what an opening that was cut short has left.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    std::fs::remove_dir_all(directory.join(TRIAL))
}

fn try_open(folder: &Path) -> Result<(Disk, Tried), Refused> {
    let disk = Disk::open_copy(folder, CACHE_BYTES).map_err(|gone| match gone {
        Gone::Keyspace(name) => Refused::Other(format!("the keyspace `{name}` is gone")),
        Gone::Journal(error) => Refused::Journal(error.to_string()),
        Gone::Engine(error) => Refused::Other(error.to_string()),
    })?;
    let other = |error: StoreError| Refused::Other(error.to_string());
    let log = journal::recover(disk.log()).map_err(other)?;
    let marks = disk.marks().map_err(other)?;
    Ok((disk, Tried { log, marks, torn: None }))
}

/// Takes the folder away, however the trial ended.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            create_folder(&target)?;
            copy(&path, &target)?;
        } else if is_immutable(from) {
            // Some file systems have no links.
            std::os::unix::fs::symlink(&path, &target).or_else(|_| copy_file(&path, &target))?;
        } else {
            copy_file(&path, &target)?;
        }
    }
    Ok(())
}

/// Whether files in this folder never change once they are written.
pub(super) fn is_immutable(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "tables" || name == "blobs")
}

/// Copies a file; parts without anything stay so.
pub(crate) fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, create_private(to)?);
    let mut buffer = vec![0; COPIED_BYTES];
    let mut bytes = 0;
    loop {
        let count = from.read(&mut buffer)?;
        let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else { break };
        if part.iter().any(|byte| *byte != 0) {
            to.seek(SeekFrom::Start(bytes))?;
            to.write_all(part)?;
        }
        bytes += count as u64;
    }
    to.set_len(bytes)
}
