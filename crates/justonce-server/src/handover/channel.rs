//! What the two processes tell each other, over a Unix socket.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, ensure};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// The version of the first message. A successor that does not know it refuses to start, and the
/// predecessor goes on.
const VERSION: u32 = 1;
/// The most sockets: `listen` and `admin`.
const MAX_SOCKETS: usize = 2;
/// The longest first message: two addresses, twice.
const MAX_BYTES: usize = 4096;
/// What ends a message.
const END: u8 = b'\n';

/// The first message of a predecessor: the sockets that come with it, in order.
#[derive(Debug, Serialize, Deserialize)]
struct Passed {
    version: u32,
    sockets: Vec<PassedSocket>,
}

/// A socket that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassedSocket {
    /// The setting that it is for.
    pub(crate) setting: String,
    /// Its address, as the predecessor's configuration has it.
    pub(crate) configured: String,
    /// Whether the file of a Unix socket is removed by whoever serves it.
    pub(crate) owns_file: bool,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The successor has read its configuration and its files. Only the store is missing.
    Prepared,
    /// The predecessor has closed the store.
    Store,
    /// The successor accepts connections.
    Serving,
}

impl Message {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Prepared => b'p',
            Self::Store => b's',
            Self::Serving => b'r',
        }
    }
}

/// Sends the sockets.
///
/// # Errors
///
/// If the other process has gone.
pub(super) fn send_sockets(
    channel: &UnixStream,
    sockets: &[(PassedSocket, BorrowedFd<'_>)],
) -> anyhow::Result<()> {
    ensure!(sockets.len() <= MAX_SOCKETS, "too many sockets");
    let told = sockets.iter().map(|(told, _)| told.clone()).collect();
    let mut bytes = serde_json::to_vec(&Passed { version: VERSION, sockets: told })?;
    bytes.push(END);
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(|(_, fd)| *fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    ensure!(control.push(SendAncillaryMessage::ScmRights(&fds)), "the sockets do not fit");
    let sent = sendmsg(channel, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
    let sent = sent.map_err(io::Error::from).context("the sockets cannot be sent")?;
    ensure!(sent == bytes.len(), "the sockets were not sent as a whole");
    Ok(())
}

/// Receives the sockets.
///
/// # Errors
///
/// If the other process has gone, or says what this one does not understand.
pub(super) fn receive_sockets(
    channel: &UnixStream,
) -> anyhow::Result<Vec<(PassedSocket, OwnedFd)>> {
    let mut bytes = Vec::new();
    let mut fds = Vec::new();
    while bytes.last() != Some(&END) {
        ensure!(bytes.len() < MAX_BYTES, "the predecessor says too much");
        let mut part = [0; MAX_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut part)];
        let read = recvmsg(channel, into, &mut control, RecvFlags::CMSG_CLOEXEC);
        let read = read.map_err(io::Error::from).context("no sockets were received")?.bytes;
        ensure!(read > 0, "the predecessor has ended");
        bytes.extend_from_slice(part.get(..read).unwrap_or_default());
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
    }
    let passed: Passed = serde_json::from_slice(&bytes)
        .context("the predecessor says something else: it is of another release")?;
    ensure!(passed.version == VERSION, "the predecessor is of another release");
    ensure!(passed.sockets.len() == fds.len(), "sockets are missing");
    Ok(passed.sockets.into_iter().zip(fds).collect())
}

/// The socket that is this process's standard input.
///
/// # Errors
///
/// If it is none.
pub(super) fn standard_input() -> io::Result<UnixStream> {
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let wrong = |error| io::Error::new(ErrorKind::InvalidInput, error);
    stream.peer_addr().map_err(wrong)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn socket(setting: &str) -> PassedSocket {
        let (setting, configured) = (setting.to_owned(), "127.0.0.1:0".to_owned());
        PassedSocket { setting, configured, owns_file: false }
    }

    #[test]
    fn sockets_arrive_with_what_is_said_of_them() {
        let (here, there) = UnixStream::pair().unwrap();
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (one, two) = (bind(), bind());
        let sent = [(socket("listen"), one.as_fd()), (socket("admin"), two.as_fd())];
        send_sockets(&here, &sent).unwrap();
        let received = receive_sockets(&there).unwrap();
        let addresses = [one.local_addr().unwrap(), two.local_addr().unwrap()];
        drop((one, two));
        let told: Vec<_> = received.iter().map(|(told, _)| told.clone()).collect();
        assert_eq!(told, [socket("listen"), socket("admin")]);
        for ((_, fd), address) in received.into_iter().zip(addresses) {
            let listener = TcpListener::from(fd);
            TcpStream::connect(address).unwrap();
            assert_eq!(listener.local_addr().unwrap(), address);
        }
        // Without any.
        send_sockets(&here, &[]).unwrap();
        assert!(receive_sockets(&there).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for said in ["\n", "{}\n", "{\"version\":2,\"sockets\":[]}\n", "", "no end"] {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(said.as_bytes()).unwrap();
            drop(here);
            assert!(receive_sockets(&there).is_err(), "{said:?}");
        }
        let (mut here, there) = UnixStream::pair().unwrap();
        let missing = "{\"version\":1,\"sockets\":[{\"setting\":\"listen\",\"configured\":\"a\",\
                       \"owns_file\":false}]}\n";
        here.write_all(missing.as_bytes()).unwrap();
        assert!(receive_sockets(&there).unwrap_err().to_string().contains("missing"));
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[b' '; 2 * MAX_BYTES]).unwrap();
        assert!(receive_sockets(&there).is_err());
    }
}
