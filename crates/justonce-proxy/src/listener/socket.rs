//! Sockets that accept connections: bound here, or passed on by another process.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::park_timeout;
use std::time::Duration;

use justonce_net::SocketAddress;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::settings::BACKLOG;
use super::socket_file::{SocketFile, remove_stale};

/// How often a directory is tried that somebody has locked. A gateway needs it for a moment only:
/// whoever keeps it is none, and must not keep this one from starting.
const LOCK_TRIES: u32 = 100;
/// The pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A socket that accepts connections, and is not served yet.
///
/// ```
/// use justonce_net::SocketAddress;
/// use justonce_proxy::ListenSocket;
///
/// let directory = tempfile::tempdir()?;
/// let address = SocketAddress::Unix(directory.path().join("http.sock"));
/// // Its owner and its group may connect.
/// let socket = ListenSocket::bind(&address, 0o660)?;
/// assert!(ListenSocket::bind(&address, 0o660).is_err());
/// # drop(socket);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ListenSocket {
    pub(super) socket: Socket,
    pub(super) address: SocketAddress,
    pub(super) file: Option<SocketFile>,
}

impl ListenSocket {
    /// Binds a socket. Port 0 is any free one. `mode` is that of the file of a Unix socket; such a
    /// file that a process has left behind is replaced.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or another process listens there.
    pub fn bind(address: &SocketAddress, mode: u32) -> io::Result<Self> {
        match address {
            SocketAddress::Tcp(address) => Self::tcp(*address),
            SocketAddress::Unix(path) => {
                let (socket, file) = bind_unix(path, mode)?;
                Ok(Self { socket, address: address.clone(), file: Some(file) })
            }
        }
    }

    fn tcp(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // `[::]` also accepts IPv4.
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { socket, address: bound.into(), file: None })
    }

    /// A socket that another process has bound.
    ///
    /// # Errors
    ///
    /// If it accepts no connections of streams, or is no TCP or Unix socket with an address.
    pub fn passed(socket: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(socket);
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        let is_stream = socket.r#type().is_ok_and(|kind| kind == Type::STREAM);
        if !is_stream || !socket.is_listener().unwrap_or(false) {
            return Err(wrong("it is no socket that accepts connections"));
        }
        let local = socket.local_addr()?;
        let address = match (local.as_socket(), local.as_pathname()) {
            (Some(address), _) => SocketAddress::Tcp(address),
            (_, Some(path)) => SocketAddress::Unix(path.to_owned()),
            _ => return Err(wrong("it has neither an IP address nor a path")),
        };
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, file: None })
    }

    /// Removes the socket's file once it has been served, if it is still that of this socket.
    #[must_use]
    pub fn with_file(mut self) -> Self {
        if let SocketAddress::Unix(path) = &self.address {
            self.file = SocketFile::of(path).ok();
        }
        self
    }

    /// Whether its file is removed once it has been served.
    #[must_use]
    pub const fn owns_file(&self) -> bool {
        self.file.is_some()
    }

    /// The address, with the port that the system chose.
    #[must_use]
    pub const fn address(&self) -> &SocketAddress {
        &self.address
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn bind_unix(path: &Path, mode: u32) -> io::Result<(Socket, SocketFile)> {
    let address = SockAddr::unix(path)?;
    // Until it listens, another gateway that starts would take its file for a stale one.
    let _alone = alone_in(path);
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address)?;
    let file = SocketFile::of(path)?;
    // Nobody can connect before `listen`, whatever the mode is until then.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok((socket, file))
}

/// Waits until no other gateway makes or removes sockets in this directory. One that cannot be
/// opened for reading, or that stays locked, is used without that.
fn alone_in(path: &Path) -> Option<File> {
    let directory = File::open(path.parent()?).ok()?;
    for _ in 0..LOCK_TRIES {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            Err(TryLockError::WouldBlock) => park_timeout(LOCK_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    tracing::warn!("another program keeps the directory of {} locked", path.display());
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::sync::Barrier;

    use super::*;

    fn unix(path: &Path) -> SocketAddress {
        SocketAddress::Unix(path.to_owned())
    }

    fn refusal(path: &Path) -> String {
        ListenSocket::bind(&unix(path), 0o660).unwrap_err().to_string()
    }

    #[test]
    fn a_stale_file_is_replaced_and_the_mode_is_as_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        // Its process has died, or has not cleaned up.
        drop(UnixListener::bind(&path).unwrap());
        let socket = ListenSocket::bind(&unix(&path), 0o606).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o606);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert!(UnixStream::connect(&path).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_file_in_use_is_refused_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let used = ListenSocket::bind(&unix(&path), 0o660).unwrap();
        assert!(refusal(&path).contains("another process listens there"));
        UnixStream::connect(&path).unwrap();
        drop(used);
        // With a backlog that is full, too.
        fs::remove_file(&path).unwrap();
        let full = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        full.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        full.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        assert!(refusal(&path).contains("another process listens there"));
    }

    #[test]
    fn what_is_no_socket_of_ours_is_never_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(refusal(&path).contains("no socket"), "{}", refusal(&path));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        let _datagrams = UnixDatagram::bind(&path).unwrap();
        refusal(&path);
        assert!(path.exists());
        assert!(!refusal(&directory.path().join("missing/a.sock")).is_empty());
    }

    /// Everybody who may read a directory may lock it.
    #[test]
    fn a_directory_that_a_stranger_keeps_locked_holds_nothing_up() {
        let directory = tempfile::tempdir().unwrap();
        let stranger = File::open(directory.path()).unwrap();
        stranger.lock().unwrap();
        let path = directory.path().join("a.sock");
        let (bound, result) = std::sync::mpsc::channel();
        std::thread::spawn({
            let address = unix(&path);
            move || bound.send(ListenSocket::bind(&address, 0o660))
        });
        let socket = result.recv_timeout(Duration::from_secs(20)).expect("it waits for ever");
        assert!(socket.is_ok(), "{socket:?}");
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn of_many_that_start_at_once_one_gets_the_socket() {
        for _ in 0..200 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("a.sock");
            drop(UnixListener::bind(&path).unwrap());
            let all = Barrier::new(4);
            let bound: Vec<_> = std::thread::scope(|scope| {
                let bind = || {
                    all.wait();
                    ListenSocket::bind(&unix(&path), 0o660)
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
            });
            assert_eq!(bound.len(), 1);
            UnixStream::connect(&path).unwrap();
            assert!(bound[0].file.as_ref().unwrap().is_there());
        }
    }

    #[test]
    fn sockets_of_other_processes_are_taken_if_they_accept_connections() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let passed = ListenSocket::passed(tcp.into()).unwrap();
        assert_eq!(*passed.address(), SocketAddress::Tcp(address));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let passed = ListenSocket::passed(UnixListener::bind(&path).unwrap().into()).unwrap();
        assert_eq!(*passed.address(), unix(&path));
        let (stream, _other) = UnixStream::pair().unwrap();
        assert!(ListenSocket::passed(stream.into()).is_err());
        assert!(ListenSocket::passed(UnixDatagram::unbound().unwrap().into()).is_err());
        assert!(ListenSocket::passed(fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
