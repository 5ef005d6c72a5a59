//! The files of Unix sockets: whose they are, and when they may be removed.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// The file of a socket of this process. While the socket is open, no other file gets its number.
#[derive(Clone, Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    number: u64,
}

impl SocketFile {
    /// The file that is at this path now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: found.dev(), number: found.ino() })
    }

    /// Whether it is still there.
    pub(super) fn is_there(&self) -> bool {
        let found = fs::symlink_metadata(&self.path);
        found.is_ok_and(|found| found.dev() == self.device && found.ino() == self.number)
    }

    /// Removes it, if it is still there: another process may have put its own in that place.
    pub(super) fn remove(&self) {
        if self.is_there()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "the socket {} cannot be removed", self.path.display());
        }
    }
}

/// Removes the file of a socket whose process is gone, if there is one.
///
/// # Errors
///
/// If it is in use, or no socket.
pub(super) fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let why = "there is a file that is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    if is_served(path)? {
        let why = "another process listens there";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    }
    fs::remove_file(path)
}

/// Whether somebody accepts connections there.
fn is_served(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // With a backlog that is full it would wait.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => Ok(true),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
            _ => Err(error),
        },
    }
}
