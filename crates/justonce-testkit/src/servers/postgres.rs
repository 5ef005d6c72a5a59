//! A private PostgreSQL server.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;

use super::authority::{CHAIN, KEY};
use super::postgres_template::{Binaries, cluster};
use super::{Certificate, Process, ServerError, free_port};

/// Whom the server runs as if this process is root's: PostgreSQL refuses to be root's.
pub(super) const USER: &str = "postgres";
/// How often a new server is asked whether it is there, with a pause in between: half a minute.
const ASKED_AT_MOST: u32 = 1500;
/// The pause between two questions: nobody tells us when a server is there.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How many ports are tried: another process may take one between its choice and its use.
const PORTS_TRIED: u32 = 3;

/// How a private PostgreSQL is set up.
///
/// ```
/// use justonce_testkit::servers::PostgresOptions;
///
/// // The default: as fast as it can be; a crash of the machine may lose everything.
/// let fast = PostgresOptions::default();
/// // Customised: as durable as in earnest.
/// let durable = PostgresOptions { fsync: true, ..PostgresOptions::default() };
/// ```
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Whether commits wait for the disk.
    pub fsync: bool,
    /// How many connections it takes.
    pub max_connections: u32,
    /// Who it is. With a certificate it takes connections with TLS, and no others.
    pub tls: Option<Certificate>,
    /// More settings, by name.
    pub settings: Vec<(String, String)>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { fsync: false, max_connections: 300, tls: None, settings: Vec::new() }
    }
}

/// A private PostgreSQL with a cluster of its own. It ends with its handle.
pub struct PostgresServer {
    process: Process,
    binaries: Binaries,
    options: PostgresOptions,
    directory: TempDir,
    port: u16,
}

impl PostgresServer {
    /// Makes a cluster and starts a server on it.
    ///
    /// # Errors
    ///
    /// If PostgreSQL is not installed or does not start.
    pub fn start(options: PostgresOptions) -> Result<Self, ServerError> {
        let binaries = Binaries::find()?;
        let directory = private_directory()?;
        cluster(&binaries, &directory.path().join("data"))?;
        if let Some(certificate) = &options.tls {
            secure(certificate, directory.path())?;
        }
        let mut complaint = None;
        for _ in 0..PORTS_TRIED {
            let port = free_port()?;
            match run(&binaries, &options, directory.path(), port) {
                Ok(process) => return Ok(Self { process, binaries, options, directory, port }),
                Err(error) => complaint = Some(error),
            }
        }
        Err(complaint.unwrap_or_else(|| ServerError::new("postgres", &"no port was tried")))
    }

    /// The address of its database, for clients.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The address of another database of the same server.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL as the superuser and returns what it prints, one row a line, `|` between columns.
    ///
    /// # Errors
    ///
    /// If PostgreSQL refuses it.
    pub fn psql(&self, sql: &str) -> Result<String, ServerError> {
        let mut command = Command::new(self.binaries.tool("psql"));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        command.args(["--set", "ON_ERROR_STOP=1", "--dbname", &self.url(), "--command", sql]);
        output(command)
    }

    /// Ends it as a crash would: nothing is written down, connections are cut.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    pub fn stop_immediate(&mut self) -> Result<(), ServerError> {
        // A paused server would not hear it.
        let _ = self.process.resume();
        self.process.stop(Signal::SIGQUIT).map(drop)
    }

    /// Ends it in good order; connections are cut.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    pub fn stop(&mut self) -> Result<(), ServerError> {
        self.process.stop(Signal::SIGINT).map(drop)
    }

    /// Starts it again on the same cluster and port.
    ///
    /// # Errors
    ///
    /// If it does not come back.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.process = run(&self.binaries, &self.options, self.directory.path(), self.port)?;
        Ok(())
    }

    /// Stops the server and all its connections where they stand, as SIGSTOP does.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.signal_all(Signal::SIGSTOP)
    }

    /// Lets everything go on.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.signal_all(Signal::SIGCONT)
    }

    /// Each connection is a process of its own, a child of the server's.
    fn signal_all(&self, signal: Signal) -> Result<(), ServerError> {
        self.process.signal(signal)?;
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.map_err(|error| ServerError::new("no list of children", &error))?;
        for child in children.split_whitespace().filter_map(|id| id.parse().ok()) {
            // A connection that has just ended needs no signal.
            let _ = kill(Pid::from_raw(child), signal);
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresServer").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // In this order it takes its shared memory along; the handle kills what is left.
        let _ = self.stop_immediate();
    }
}

/// A directory that belongs to whom the server runs as.
fn private_directory() -> Result<TempDir, ServerError> {
    let failed = |error: std::io::Error| ServerError::new("no directory for PostgreSQL", &error);
    let directory = tempfile::Builder::new().prefix("justonce-pg-").tempdir().map_err(failed)?;
    give_away(directory.path())?;
    Ok(directory)
}

/// Makes a file or directory that of whom the server runs as.
pub(super) fn give_away(path: &Path) -> Result<(), ServerError> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let user = User::from_name(USER).ok().flatten();
    let user = user.ok_or_else(|| ServerError::new("no user for PostgreSQL", &USER))?;
    let (uid, gid) = (Some(user.uid.as_raw()), Some(user.gid.as_raw()));
    std::os::unix::fs::chown(path, uid, gid)
        .map_err(|error| ServerError::new(&format!("cannot give {} away", path.display()), &error))
}

/// Writes down who the server is, and that it takes connections with TLS only.
fn secure(certificate: &Certificate, directory: &Path) -> Result<(), ServerError> {
    certificate.write_to(directory)?;
    give_away(&directory.join(CHAIN))?;
    give_away(&directory.join(KEY))?;
    let access = "hostssl all all 127.0.0.1/32 trust\n";
    std::fs::write(directory.join("data/pg_hba.conf"), access)
        .map_err(|error| ServerError::new("cannot write pg_hba.conf", &error))
}

/// Starts a server and waits until it takes connections.
fn run(
    binaries: &Binaries,
    options: &PostgresOptions,
    directory: &Path,
    port: u16,
) -> Result<Process, ServerError> {
    let log: PathBuf = directory.join("log");
    let postgres = binaries.tool("postgres");
    let mut arguments: Vec<OsString> =
        vec!["-D".into(), directory.join("data").into(), "-p".into(), port.to_string().into()];
    let durable = if options.fsync { "on" } else { "off" };
    let fixed = [
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("shared_preload_libraries", "pg_stat_statements"),
        ("shared_buffers", "64MB"),
        ("logging_collector", "off"),
        ("fsync", durable),
        ("full_page_writes", durable),
    ];
    let tls = if options.tls.is_some() { "on" } else { "off" };
    let (chain, key) = (directory.join(CHAIN), directory.join(KEY));
    let tls = [
        ("ssl", tls),
        ("ssl_cert_file", chain.to_str().unwrap_or_default()),
        ("ssl_key_file", key.to_str().unwrap_or_default()),
    ];
    let fixed = fixed.into_iter().chain(tls);
    let connections = options.max_connections.to_string();
    let own = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in fixed.chain([("max_connections", &*connections)]).chain(own) {
        arguments.extend(["-c".into(), format!("{name}={value}").into()]);
    }
    let mut process = Process::start(&postgres, &arguments, &[], &log, Some(USER))?;
    for _ in 0..ASKED_AT_MOST {
        if !process.is_running() {
            return Err(process.complaint("it ended at once"));
        }
        let mut ask = Command::new(binaries.tool("pg_isready"));
        ask.args(["--quiet", "--host", "127.0.0.1", "--port", &port.to_string()]);
        if ask.stdin(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Ok(process);
        }
        std::thread::park_timeout(ASK_AGAIN_AFTER);
    }
    Err(process.complaint("it does not take connections"))
}

/// Runs a tool to its end and returns what it prints.
pub(super) fn output(mut command: Command) -> Result<String, ServerError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| ServerError::new(&format!("cannot run {name}"), &error))?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(ServerError::new(&format!("{name} failed"), &why));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_owned())
}
