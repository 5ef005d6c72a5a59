//! A private PostgreSQL server.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::authority::{CHAIN, KEY};
use super::port::on_free_port;
use super::postgres_template::{Binaries, cluster};
use super::postgres_user::{USER, give_away, output};
use super::{Certificate, Process, ServerError};

/// Settings of a private PostgreSQL.
///
/// ```
/// use justonce_testbed::PostgresOptions;
///
/// // The default: fast; a crash of the machine may lose everything.
/// let fast = PostgresOptions::default();
/// // Customised: as durable as in production.
/// let durable = PostgresOptions { fsync: true, ..PostgresOptions::default() };
/// ```
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Whether commits wait for the disk.
    pub fsync: bool,
    /// How many connections it accepts.
    pub max_connections: u32,
    /// Its certificate. With one, it accepts connections with TLS only.
    pub tls: Option<Certificate>,
    /// More settings, by name.
    pub settings: Vec<(String, String)>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { fsync: false, max_connections: 300, tls: None, settings: Vec::new() }
    }
}

/// A private PostgreSQL with a cluster of its own. Dropping the handle kills it.
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
        let (process, port) =
            on_free_port(|port| Ok((run(&binaries, &options, directory.path(), port)?, port)))?;
        Ok(Self { process, binaries, options, directory, port })
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

    /// Ends it as a crash would: nothing is flushed, connections are cut.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
    pub fn stop_immediate(&mut self) -> Result<(), ServerError> {
        // A paused server would not handle the signal.
        let _ = self.process.resume();
        self.process.stop(Signal::SIGQUIT).map(drop)
    }

    /// Shuts it down cleanly; connections are cut.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
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

    /// Suspends the server and all its connections, with SIGSTOP.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.signal_all(Signal::SIGSTOP)
    }

    /// Resumes the server and its connections.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.signal_all(Signal::SIGCONT)
    }

    /// Each connection is a child process of the server.
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
        // A fast shutdown frees the shared memory; the handle kills what is left.
        let _ = self.stop_immediate();
    }
}

/// A directory owned by the server's user.
fn private_directory() -> Result<TempDir, ServerError> {
    let failed = |error: std::io::Error| ServerError::new("no directory for PostgreSQL", &error);
    let directory = tempfile::Builder::new().prefix("justonce-pg-").tempdir().map_err(failed)?;
    give_away(directory.path())?;
    Ok(directory)
}

/// Writes the certificate, and configures that only TLS connections are accepted.
fn secure(certificate: &Certificate, directory: &Path) -> Result<(), ServerError> {
    certificate.write_to(directory)?;
    give_away(&directory.join(CHAIN))?;
    give_away(&directory.join(KEY))?;
    let access = "hostssl all all 127.0.0.1/32 trust\n";
    std::fs::write(directory.join("data/pg_hba.conf"), access)
        .map_err(|error| ServerError::new("cannot write pg_hba.conf", &error))
}

/// Starts a server and waits until it accepts connections.
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
    let process = Process::start(&postgres, &arguments, &[], &log, Some(USER))?;
    process.wait_until(|| {
        let mut ready = Command::new(binaries.tool("pg_isready"));
        ready.args(["--quiet", "--host", "127.0.0.1", "--port", &port.to_string()]);
        ready.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
    })
}
