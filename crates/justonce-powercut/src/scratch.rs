//! Where states are written.

use std::io;

use tempfile::TempDir;

/// The system's memory as a file system: a state is written, opened once and removed.
const IN_MEMORY: &str = "/dev/shm";
/// The room that a run may need.
const NEEDED_BYTES: u64 = 3 * 1024 * 1024 * 1024;

/// A directory for states: in memory if there is room, else where the system has its temporary
/// files. It goes with the value.
///
/// # Errors
///
/// What the system says.
pub fn directory() -> io::Result<TempDir> {
    let free = nix::sys::statvfs::statvfs(IN_MEMORY)
        .map_or(0, |found| found.blocks_available() * found.fragment_size());
    if free < NEEDED_BYTES {
        return tempfile::tempdir();
    }
    tempfile::tempdir_in(IN_MEMORY).or_else(|_| tempfile::tempdir())
}
