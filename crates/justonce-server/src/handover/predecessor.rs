//! The process that started this one as its successor.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use anyhow::{Context, bail};
use justonce_proxy::ListenSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tracing::{info, warn};

use super::channel::{self, Message, PassedSocket};

/// How long the sockets may take to come.
const SOCKETS_WITHIN: Duration = Duration::from_secs(10);

/// The process that hands its sockets over to this one.
#[derive(Debug)]
pub(crate) struct Predecessor {
    channel: StdStream,
}

/// The same, heard from asynchronously.
#[derive(Debug)]
pub(crate) struct Line {
    channel: UnixStream,
}

impl Predecessor {
    /// Finds it at standard input, and receives its sockets.
    ///
    /// # Errors
    ///
    /// If there is none, or it is of another release.
    pub(crate) fn find() -> anyhow::Result<(Self, Vec<(PassedSocket, ListenSocket)>)> {
        let channel = channel::standard_input().context(
            "`--take-over` is for a gateway that another one starts: send that one SIGUSR2",
        )?;
        channel.set_read_timeout(Some(SOCKETS_WITHIN))?;
        let received = channel::receive_sockets(&channel)?;
        let sockets: anyhow::Result<Vec<_>> = received
            .into_iter()
            .map(|(told, fd)| {
                let socket = ListenSocket::passed(fd)
                    .with_context(|| format!("the socket for `{}` cannot be used", told.setting))?;
                let socket = if told.owns_file { socket.with_file() } else { socket };
                Ok((told, socket))
            })
            .collect();
        Ok((Self { channel }, sockets?))
    }

    /// Speaks with it from a runtime.
    ///
    /// # Errors
    ///
    /// If the runtime cannot watch its socket.
    pub(crate) fn line(self) -> anyhow::Result<Line> {
        self.channel.set_nonblocking(true)?;
        Ok(Line { channel: UnixStream::from_std(self.channel)? })
    }
}

impl Line {
    /// Says that only the store is missing, and waits until it is free. If the predecessor dies, it
    /// is free too.
    ///
    /// # Errors
    ///
    /// If the predecessor says something else.
    pub(crate) async fn store(&mut self) -> anyhow::Result<()> {
        self.say(Message::Prepared).await;
        info!("everything but the store is ready: the predecessor is told");
        let mut said = [0];
        match self.channel.read_exact(&mut said).await {
            Ok(_) if said == [Message::Store.byte()] => Ok(()),
            Ok(_) => bail!("the predecessor says something else: it is of another release"),
            Err(error) if is_end(error.kind()) => {
                warn!("the predecessor has died: this process takes over");
                Ok(())
            }
            Err(error) => Err(error).context("the predecessor cannot be heard"),
        }
    }

    /// Says that connections are accepted.
    pub(crate) async fn serving(&mut self) {
        self.say(Message::Serving).await;
    }

    async fn say(&mut self, message: Message) {
        if let Err(error) = self.channel.write_all(&[message.byte()]).await {
            warn!(%error, "the predecessor does not hear any more");
        }
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
