//! The files of Unix sockets: whose they are, and when they may be removed.

use std::ffi::OsString;
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

/// Removes the file of a socket whose process is gone.
///
/// # Errors
///
/// If it is in use, or no socket.
pub(super) fn remove_stale(path: &Path) -> io::Result<()> {
    let Some(found) = unless_missing(fs::symlink_metadata(path))? else { return Ok(()) };
    if !found.file_type().is_socket() {
        let why = "there is a file that is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    if is_served(path)? {
        return Err(in_use());
    }
    // Another process may have replaced it since: it is moved away, and looked at again.
    let mut aside = OsString::from(path);
    aside.push(format!(".{}-{}", std::process::id(), found.ino()));
    let aside = PathBuf::from(aside);
    if unless_missing(fs::rename(path, &aside))?.is_none() {
        return Ok(());
    }
    let served = is_served(&aside);
    if !matches!(served, Ok(false)) {
        let put_back = fs::hard_link(&aside, path);
        fs::remove_file(&aside)?;
        put_back?;
        return Err(served.err().unwrap_or_else(in_use));
    }
    fs::remove_file(&aside)
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")
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

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
