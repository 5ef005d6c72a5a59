//! A crash, as the files lie.

use std::io;
use std::path::Path;

/// Copies a directory with all that is in it. Of a store that is open this is what a crash would
/// leave at that moment.
///
/// # Errors
///
/// If a file cannot be read or written.
pub fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
