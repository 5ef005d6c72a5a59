//! Files that only their owner may read.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use justonce_core::store::HealthWarning;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
/// What the group and all others may do.
const OTHERS: u32 = 0o077;

/// What a file system of its own has at its root.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// Options for a file that, if it is made, is private.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(PRIVATE_FILE);
    options
}

/// A private file that is empty, also if there was one.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    private().write(true).create(true).truncate(true).open(path)
}

/// Creates a private folder if there is none.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(PRIVATE_FOLDER).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Creates the directory of a store if there is none, with those above it, so that a power cut does
/// not take it away again.
pub(crate) fn create_durable_folder(path: &Path) -> io::Result<()> {
    // The name of a relative path lies in the current directory.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        make_durable_folder(parent)?;
    }
    create_folder(path)?;
    // Also if it was there: perhaps a process was killed that had just made it.
    sync_if_readable(parent)
}

fn make_durable_folder(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        make_durable_folder(parent)?;
    }
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    sync_if_readable(parent)
}

/// Syncs a directory that is not the store's. One that may be entered, but not read, cannot be
/// synced.
pub(crate) fn sync_if_readable(path: &Path) -> io::Result<()> {
    match sync_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Syncs a directory, and all below it.
pub(crate) fn sync_directories(path: &Path) -> io::Result<()> {
    for below in walk(path, |_| false)? {
        if below.is_dir() {
            sync_directory(&below)?;
        }
    }
    sync_directory(path)
}

/// Whether nothing is in a folder that somebody could miss.
pub(crate) fn is_unused(folder: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        if entry?.file_name() != LOST_AND_FOUND {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where the storage engine's files are frozen for a backup: on the same file system, also where
/// its folder is a link.
pub(crate) fn frozen_folder(engine: &Path) -> PathBuf {
    let real = engine.canonicalize().unwrap_or_else(|_| engine.to_owned());
    let mut name = real.file_name().unwrap_or_default().to_owned();
    name.push(".justonce-frozen");
    real.with_file_name(name)
}

/// Whether others may do anything with a file or folder.
fn is_wide(path: &Path) -> io::Result<bool> {
    Ok(path.symlink_metadata()?.mode() & OTHERS != 0)
}

/// Whether a file is gone, or belongs to another user, as `lost+found` does.
fn is_not_ours(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Everything in a folder, at any depth. A folder below that cannot be read is passed over if that
/// is said of the error.
pub(crate) fn walk(
    folder: &Path,
    is_passed_over: fn(&io::Error) -> bool,
) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if is_passed_over(&error) => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The folders of a store that may lie elsewhere, behind links.
const LINKED: [&str; 2] = ["records", "wal"];

/// The permissions of a store's directory. The storage engine creates its files with the system's
/// default mode; they are made private afterwards. Files that were accessible before are left as
/// they are, since something may rely on it, and reported in a warning.
#[derive(Debug)]
pub(crate) struct Modes {
    /// The directory, and what of it lies behind links.
    folders: Vec<PathBuf>,
    /// What others could reach when the store was opened.
    left: HashSet<PathBuf>,
    /// Those of the folders that others can reach.
    wide: Vec<PathBuf>,
}

impl Modes {
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        let linked = LINKED.map(|name| directory.join(name)).into_iter();
        let linked = linked.filter(|path| path.is_symlink() && path.is_dir());
        let folders: Vec<PathBuf> = [directory.to_owned()].into_iter().chain(linked).collect();
        let (mut left, mut wide) = (HashSet::new(), Vec::new());
        for folder in &folders {
            // What is in a private folder cannot be reached.
            if folder.metadata()?.mode() & OTHERS == 0 {
                continue;
            }
            wide.push(folder.clone());
            left.extend(
                walk(folder, is_not_ours)?
                    .into_iter()
                    .filter(|path| is_wide(path).unwrap_or(false)),
            );
        }
        Ok(Self { folders, left, wide })
    }

    /// Makes private what the store has made since it was opened. Files come and go meanwhile.
    pub(crate) fn restrict(&self) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| self.restrict_in(folder))
    }

    fn restrict_in(&self, folder: &Path) -> io::Result<()> {
        for path in walk(folder, is_not_ours)? {
            if self.left.contains(&path) {
                continue;
            }
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let mode = if metadata.is_dir() { PRIVATE_FOLDER } else { PRIVATE_FILE };
            if metadata.mode() & OTHERS != 0 && !metadata.is_symlink() {
                match std::fs::set_permissions(&path, Permissions::from_mode(mode)) {
                    Err(error) if !is_not_ours(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What operators should know.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = HealthWarning> + '_ {
        self.wide.iter().map(|folder| HealthWarning {
            name: "directory-open-to-others",
            message: format!(
                "other users of this machine can reach the store in {0}: unless that is wanted, \
                 say `chmod -R go= {0}/`",
                folder.display()
            ),
        })
    }
}
