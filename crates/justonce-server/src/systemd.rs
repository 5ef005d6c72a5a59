//! The service manager: the sockets that it has opened, and what it is told.
//!
//! Both protocols are systemd's; others speak them too.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::Context;
use justonce_proxy::ListenSocket;
use listenfd::ListenFd;
use tracing::warn;

/// Where the service manager listens, if there is one.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The names of the sockets, separated by colons.
const NAMES: &str = "LISTEN_FDNAMES";

/// A socket that the service manager has opened, and the name that it gave to it.
#[derive(Debug)]
pub(crate) struct Activated {
    pub(crate) name: String,
    pub(crate) socket: ListenSocket,
}

/// Takes the sockets that the service manager has opened for this process. It is called before
/// there are threads, since it removes the variables that tell of them: no child may take them for
/// its own.
///
/// # Errors
///
/// If one of them accepts no connections.
pub(crate) fn activated() -> anyhow::Result<Vec<Activated>> {
    let names = env::var(NAMES).unwrap_or_default();
    let mut names = names.split(':').map(str::to_owned);
    let mut passed = ListenFd::from_env();
    let mut found = Vec::new();
    for at in 0..passed.len() {
        let name = names.next().filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "unnamed".to_owned());
        let wrong = || {
            format!(
                "the socket `{name}` of the service manager is no TCP or Unix socket of streams"
            )
        };
        // The copies are closed in programs that are started from here, the originals are not.
        let fd = match passed.take_tcp_listener(at) {
            Ok(Some(socket)) => socket.try_clone()?.into(),
            Ok(None) => continue,
            Err(_) => {
                let socket = passed.take_unix_listener(at).with_context(wrong)?;
                let Some(socket) = socket else { continue };
                socket.try_clone()?.into()
            }
        };
        let socket = ListenSocket::passed(fd).with_context(wrong)?;
        found.push(Activated { name, socket });
    }
    Ok(found)
}

/// Tells the service manager something, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(address) = env::var_os(NOTIFY_SOCKET).filter(|address| !address.is_empty()) else {
        return;
    };
    let send = || {
        let socket = UnixDatagram::unbound()?;
        // The service manager must not be able to hold this process up.
        socket.set_nonblocking(true)?;
        let to = match address.as_encoded_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&address)?,
        };
        socket.send_to_addr(state.as_bytes(), &to)
    };
    if let Err(error) = send() {
        warn!(%error, state, "the service manager cannot be told");
    }
}
