//! The gateway, as a child process that can be killed and started again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use justonce_core::Entropy;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long the gateway may take to come up. A machine that is busy elsewhere needs seconds.
const UP_WITHIN: Duration = Duration::from_secs(20);
/// How much of its log is shown when it does not, in lines.
const LOG_TAIL_LINES: usize = 20;
/// Ports outside the usual range of outgoing connections: none can take the gateway's port while
/// it is down.
const PORTS: RangeInclusive<u16> = 20_000..=32_000;
/// How many ports are tried.
const PORT_TRIES: usize = 100;
/// How the line begins in which the gateway says where it listens.
const LISTENING: &str = "listening on http://";
/// The prefix of the variables that are settings of the gateway.
const VARIABLE_PREFIX: &str = "JUSTONCE_";

/// The breaker is off: the toy API fails on purpose, and its failures are what is to be shown.
const CONFIG: &str = r#"grace = "1s"

[log]
level = "warn"

[breaker]
enabled = false

[[route]]
match     = "POST /payments"
key       = "required"
on_lapsed = "hold"
lease     = "2s"
"#;

/// The gateway. Its process is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    directory: PathBuf,
    upstream: SocketAddr,
    listen: SocketAddr,
    /// Stays here until it has ended, also if a future that waits for it is dropped.
    child: Mutex<Option<Child>>,
    kills: AtomicU64,
}

impl Gateway {
    /// A gateway that is not running yet. It keeps its store, its settings and its log in the
    /// directory.
    pub(crate) fn new(directory: &Path, upstream: SocketAddr, port: u16) -> Result<Self> {
        let port = if port == 0 { free_port()? } else { port };
        fs::write(directory.join("justonce.toml"), CONFIG)?;
        Ok(Self {
            directory: directory.to_owned(),
            upstream,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            child: Mutex::default(),
            kills: AtomicU64::new(0),
        })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Starts it, and returns when it listens.
    pub(crate) async fn start(&self) -> Result<()> {
        let mut slot = self.child.lock().await;
        let child = slot.insert(self.spawn().context("the gateway cannot be started")?);
        let output = child.stdout.take().context("the gateway has no output")?;
        let problem = match timeout(UP_WITHIN, listening(output)).await {
            Ok(Ok(address)) if address == self.listen.to_string() => return Ok(()),
            Ok(Ok(address)) => format!("the gateway listens on {address}, not {}", self.listen),
            Ok(Err(error)) => format!("the gateway ended before it listened ({error})"),
            Err(_) => format!("the gateway did not come up in {} s", UP_WITHIN.as_secs()),
        };
        bail!("{problem}; {}", self.log_tail())
    }

    /// Ends it with SIGKILL, and returns when it is gone. Does nothing if it is not running.
    pub(crate) async fn kill(&self) -> Result<()> {
        let mut slot = self.child.lock().await;
        if let Some(child) = slot.as_mut() {
            // It may have ended already, which is all that is wanted.
            let _ = child.start_kill();
            child.wait().await.context("the end of the gateway cannot be waited for")?;
            self.kills.fetch_add(1, Ordering::Relaxed);
        }
        *slot = None;
        Ok(())
    }

    /// How often it was killed.
    pub(crate) fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    /// Returns when the process has ended by itself.
    pub(crate) async fn ended(&self) -> Result<()> {
        if let Some(child) = self.child.lock().await.as_mut() {
            let status = child.wait().await?;
            bail!("the gateway ended by itself ({status}); {}", self.log_tail());
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Child> {
        let path = |name: &str| self.directory.join(name);
        let mut store = std::ffi::OsString::from("file:");
        store.push(path("store"));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg("--config").arg(path("justonce.toml"));
        command.arg("--listen").arg(self.listen.to_string());
        command.arg("--admin").arg("127.0.0.1:0");
        command.arg("--upstream").arg(format!("http://{}", self.upstream));
        command.arg("--store").arg(store);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(VARIABLE_PREFIX) {
                command.env_remove(name);
            }
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log()?)
            .kill_on_drop(true)
            .spawn()?;
        Ok(child)
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("gateway.log")
    }

    fn log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.log_path())
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LOG_TAIL_LINES);
        let tail = lines.get(from..).unwrap_or_default().join("\n");
        if tail.is_empty() { "its log is empty".to_owned() } else { format!("its log:\n{tail}") }
    }
}

/// Reads up to the line with the address, and discards the rest in the background.
async fn listening(output: ChildStdout) -> io::Result<String> {
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(address) = line.strip_prefix(LISTENING) {
            let address = address.trim_end_matches('/').to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(address);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn free_port() -> Result<u16> {
    let entropy = Entropy::from_system();
    let span = u32::from(PORTS.end() - PORTS.start()) + 1;
    (0..PORT_TRIES)
        .filter_map(|_| u16::try_from(entropy.next_u32() % span).ok())
        .map(|offset| PORTS.start() + offset)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .context("no free port was found; choose one with --port")
}
