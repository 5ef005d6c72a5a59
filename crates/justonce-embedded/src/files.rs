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

/// Makes a folder if there is none; private if it is made.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(PRIVATE_FOLDER).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether others may do anything with a file or folder.
fn is_wide(path: &Path) -> io::Result<bool> {
    Ok(path.symlink_metadata()?.mode() & OTHERS != 0)
}

/// Everything in a folder, at any depth.
pub(crate) fn walk(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
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

/// Who may read a store's directory. The storage engine makes its files as the system's default
/// says; they are made private afterwards. What was wider before is left to the operator, who is
/// warned: somebody may rely on it.
#[derive(Debug)]
pub(crate) struct Modes {
    directory: PathBuf,
    /// What others could reach when the store was opened.
    left: HashSet<PathBuf>,
    is_wide: bool,
}

impl Modes {
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        let is_wide = is_wide(directory)?;
        let mut left = HashSet::new();
        // In a private folder nobody reaches what lies below.
        if is_wide {
            for path in walk(directory)? {
                if self::is_wide(&path).unwrap_or(false) {
                    left.insert(path);
                }
            }
        }
        Ok(Self { directory: directory.to_owned(), left, is_wide })
    }

    /// Makes private what the store has made since it was opened. Files come and go meanwhile.
    pub(crate) fn restrict(&self) -> io::Result<()> {
        for path in walk(&self.directory)? {
            if self.left.contains(&path) {
                continue;
            }
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let mode = if metadata.is_dir() { PRIVATE_FOLDER } else { PRIVATE_FILE };
            if metadata.mode() & OTHERS != 0 && !metadata.is_symlink() {
                match std::fs::set_permissions(&path, Permissions::from_mode(mode)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What operators should know.
    pub(crate) fn warning(&self) -> Option<HealthWarning> {
        self.is_wide.then(|| HealthWarning {
            name: "directory-open-to-others",
            message: format!(
                "other users of this machine can reach the store in {0}: unless that is wanted, \
                 say `chmod -R go= {0}`",
                self.directory.display()
            ),
        })
    }
}
