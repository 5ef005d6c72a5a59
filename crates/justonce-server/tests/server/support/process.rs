//! The gateway as a child process, on a directory of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything in these tests may take before it counts as stuck.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A gateway that runs.
pub(crate) struct Gateway {
    child: Child,
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// Where operators connect.
    pub(crate) admin: SocketAddr,
    errors: Receiver<String>,
}

/// Where a gateway lives: its configuration and its store outlast the process.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.directory.path().join("justonce.toml")
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the configuration: the upstream, any free ports, and what else the test wants.
    pub(crate) fn configure(&self, upstream: SocketAddr, more: &str) {
        let store = format!("file:{}", self.directory.path().join("data").display());
        self.configure_on(upstream, &store, more);
    }

    /// The same on a store of the test's choice.
    pub(crate) fn configure_on(&self, upstream: SocketAddr, store: &str, more: &str) {
        let text = format!(
            "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = 'http://{upstream}'\n\
             store = '{store}'\n{more}\n"
        );
        // In one step: a reload must not read half of it.
        let new = self.directory.path().join("new.toml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.config()).unwrap();
    }

    pub(crate) fn start(&self) -> Gateway {
        Gateway::start(self.command()).unwrap()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = justonce();
        command.arg("serve").arg("--config").arg(self.config());
        command
    }
}

/// The program, without settings from the variables of the test run.
pub(crate) fn justonce() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_justonce"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("JUSTONCE_") {
            command.env_remove(name);
        }
    }
    command
}

impl Gateway {
    /// Starts it and waits until it listens; its log if it does not.
    pub(crate) fn start(command: Command) -> Result<Self, String> {
        let (mut gateway, shown) = Self::spawn(command)?;
        let shown = shown.replacen("https://", "http://", 1);
        let address = shown.strip_prefix("listening on http://").and_then(|at| at.parse().ok());
        gateway.address = address.ok_or(shown)?;
        Ok(gateway)
    }

    /// The same for one that may listen on a Unix socket, with the line that says where.
    pub(crate) fn start_anywhere(command: Command) -> (Self, String) {
        Self::spawn(command).unwrap()
    }

    /// It has no address yet.
    fn spawn(mut command: Command) -> Result<(Self, String), String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = lines(child.stderr.take().unwrap());
        let out = lines(child.stdout.take().unwrap());
        let shown = out.recv_timeout(LIMIT).ok();
        let admin = || out.recv_timeout(LIMIT).ok()?.strip_prefix("admin on http://")?.parse().ok();
        let Some((shown, admin)) = shown.and_then(|shown| Some((shown, admin()?))) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(errors.iter().collect::<Vec<_>>().join("\n"));
        };
        let address = SocketAddr::from(([0; 4], 0));
        Ok((Self { child, address, admin, errors }, shown))
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for the end after a signal.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// The first line of the log from now on that has this text.
    pub(crate) fn log_line(&self, text: &str) -> String {
        loop {
            let line = self.errors.recv_timeout(LIMIT).unwrap_or_else(|_| {
                panic!("the log never said {text:?}");
            });
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The lines of the log from now on, up to the first that has this text.
    pub(crate) fn log_up_to(&self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.contains(text)) {
            lines.push(self.log_line(""));
        }
        lines
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The memory it takes now, in MiB.
    pub(crate) fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, read by a thread so that the pipe is never full.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
