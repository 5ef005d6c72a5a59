//! The process that this one has started as its successor.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::channel::{self, Message, PassedSocket};

/// The flag by which a process knows that it is a successor.
const TAKE_OVER: &str = "--take-over";

/// How this process was started, so that it can be started again.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Start {
    /// Reads it. A relative path is kept as an absolute one; a name without a path is looked up
    /// again then, so that a new release at the same place is found.
    ///
    /// # Errors
    ///
    /// If the process does not know its own name.
    pub(crate) fn of_process() -> anyhow::Result<Self> {
        let mut words = std::env::args_os();
        let program = words.next().map(PathBuf::from).filter(|name| !name.as_os_str().is_empty());
        let program = program.context("this process does not know its own name")?;
        let is_looked_up = program.parent() == Some(Path::new(""));
        let program = if is_looked_up { program } else { std::path::absolute(program)? };
        let arguments = words.filter(|word| word != TAKE_OVER).collect();
        Ok(Self { program, arguments })
    }
}

/// The successor. When this is dropped before it is let go, it ends: at once if it does not serve
/// yet, and otherwise as any gateway that is told to stop, with what it is executing.
pub(super) struct Successor {
    child: Child,
    channel: UnixStream,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Prepares,
    Serves,
    LetGo,
}

impl Successor {
    /// Starts it, and sends it the sockets.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub(super) fn start(
        start: &Start,
        sockets: &[(PassedSocket, BorrowedFd<'_>)],
    ) -> anyhow::Result<Self> {
        let (ours, theirs) = StdStream::pair().context("no socket can be made")?;
        ours.set_nonblocking(true)?;
        let channel = UnixStream::from_std(ours.try_clone()?)?;
        let mut command = Command::new(&start.program);
        command.args(&start.arguments).arg(TAKE_OVER).stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command
            .spawn()
            .with_context(|| format!("{} cannot be started", start.program.display()))?;
        // This copy of its end is gone with the command, so that its end is heard.
        drop(command);
        let successor = Self { child, channel, stage: Stage::Prepares };
        channel::send_sockets(&ours, sockets)?;
        Ok(successor)
    }

    /// The number of its process.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it says this.
    ///
    /// # Errors
    ///
    /// If it ends, or says something else.
    pub(super) async fn hear(&mut self, wanted: Message) -> anyhow::Result<()> {
        let mut said = [0];
        if self.channel.read_exact(&mut said).await.is_err() {
            let status = self.child.wait().await;
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            bail!("the successor has ended ({status}); its log says why");
        }
        ensure!(said == [wanted.byte()], "the successor says something else");
        if wanted == Message::Serving {
            self.stage = Stage::Serves;
        }
        Ok(())
    }

    /// Tells it that the store is free.
    pub(super) async fn take_store(&mut self) -> anyhow::Result<()> {
        let said = self.channel.write_all(&[Message::Store.byte()]).await;
        said.context("the successor does not hear any more")
    }

    /// Looks whether it has not ended since it was last heard.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub(super) fn ensure_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the successor has ended ({status}); its log says why"),
        }
    }

    /// It serves: it lives on when this process ends.
    pub(super) fn let_go(mut self) {
        self.stage = Stage::LetGo;
    }

    /// Tells it to stop.
    fn terminate(&self) -> Option<()> {
        let pid = Pid::from_raw(self.child.id()?.try_into().ok()?);
        kill(pid, Signal::SIGTERM).ok()
    }

    /// Ends it, and waits until it has ended.
    pub(super) async fn kill(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill().await;
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = match self.stage {
            Stage::Prepares => self.child.start_kill().ok(),
            Stage::Serves => self.terminate(),
            Stage::LetGo => None,
        };
    }
}
