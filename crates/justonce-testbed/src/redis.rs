//! A private Redis server.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::authority::{AUTHORITY, CHAIN, KEY};
use super::port::on_free_port;
use super::variables::{REDIS_SERVER, chosen};
use super::{Certificate, Process, ServerError, program};

/// The Debian package of the programs.
const PACKAGE: &str = "redis-server";

/// A private Redis server with a directory and a port of its own. Dropping it kills it.
///
/// ```no_run
/// use justonce_testbed::RedisServer;
///
/// # fn main() -> Result<(), justonce_testbed::ServerError> {
/// // The default: everything in memory, nothing on disk.
/// let server = RedisServer::start()?;
/// assert_eq!(server.cli(&["PING"])?, "PONG");
///
/// // Customised: what is acknowledged is on disk.
/// let durable = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"])?;
/// durable.kill();
/// durable.restart()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisServer {
    process: Mutex<Process>,
    port: u16,
    tls: bool,
    options: Vec<String>,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server that keeps everything in memory.
    ///
    /// # Errors
    ///
    /// If it is not installed or does not start.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(&[])
    }

    /// Starts a server with further options, as on its command line.
    ///
    /// # Errors
    ///
    /// If it is not installed, does not start, or does not know an option.
    pub fn start_with(options: &[&str]) -> Result<Self, ServerError> {
        Self::start_as(None, options)
    }

    /// Starts a server that accepts connections with TLS only.
    ///
    /// # Errors
    ///
    /// If it is not installed, does not start, or does not know an option.
    pub fn start_tls(certificate: &Certificate, options: &[&str]) -> Result<Self, ServerError> {
        Self::start_as(Some(certificate), options)
    }

    pub(super) fn start_as(
        certificate: Option<&Certificate>,
        options: &[&str],
    ) -> Result<Self, ServerError> {
        Self::start_in(new_directory()?, certificate, |_| {
            Ok(options.iter().map(|option| (*option).to_owned()).collect())
        })
    }

    /// Starts a server in a directory, with options that may depend on the directory.
    pub(super) fn start_in(
        directory: TempDir,
        certificate: Option<&Certificate>,
        options: impl Fn(&Path) -> Result<Vec<String>, ServerError>,
    ) -> Result<Self, ServerError> {
        if let Some(certificate) = certificate {
            certificate.write_to(directory.path())?;
        }
        let tls = certificate.is_some();
        let (process, port, options) = on_free_port(|port| {
            let options = options(directory.path())?;
            Ok((launch(directory.path(), port, tls, &options)?, port, options))
        })?;
        Ok(Self { process: Mutex::new(process), port, tls, options, directory })
    }

    /// The address of a store on this server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "rediss" } else { "redis" }, self.place())
    }

    /// Its `host:port`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The output of `redis-cli` for a command, without the line end.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or answers with an error.
    pub fn cli(&self, arguments: &[&str]) -> Result<String, ServerError> {
        cli(self.port, self.tls, arguments)
    }

    /// The figures of `INFO` in one section, or one of them: `info("stats", "total_reads")`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or has no such figure.
    pub fn info(&self, section: &str, name: &str) -> Result<String, ServerError> {
        let text = self.cli(&["INFO", section])?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(field, _)| *field == name);
        let found = found.map(|(_, value)| value.trim().to_owned());
        found.ok_or_else(|| ServerError::new(name, &"INFO does not say"))
    }

    /// Kills the server with SIGKILL and waits until it has ended.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Shuts the server down with SIGTERM and waits until it has ended.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
    pub fn stop(&self) -> Result<(), ServerError> {
        self.process().stop(Signal::SIGTERM).map(drop)
    }

    /// Starts the server again on its port and with its files.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn restart(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        process.kill();
        *process = launch(self.directory.path(), self.port, self.tls, &self.options)?;
        Ok(())
    }

    /// Suspends it, with SIGSTOP.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.process().pause()
    }

    /// Resumes it.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.process().resume()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory for a server.
pub(super) fn new_directory() -> Result<TempDir, ServerError> {
    tempfile::tempdir().map_err(|error| ServerError::new("no directory for redis-server", &error))
}

/// Options of `redis-cli` for TLS, without verification of the server.
pub(super) const CLI_TLS: &[&str] = &["--tls", "--insecure"];

/// The output of `redis-cli` for a command sent to a port.
pub(super) fn cli(port: u16, tls: bool, arguments: &[&str]) -> Result<String, ServerError> {
    let port = port.to_string();
    let mut all = vec!["-p", port.as_str(), "-e"];
    all.extend_from_slice(if tls { CLI_TLS } else { &[] });
    all.extend_from_slice(arguments);
    run_cli(&all)
}

/// The output of `redis-cli`.
pub(super) fn run_cli(arguments: &[&str]) -> Result<String, ServerError> {
    let what = || format!("redis-cli {}", arguments.join(" "));
    let output = Command::new(program("redis-cli", &[], "redis-tools")?)
        .args(arguments)
        .output()
        .map_err(|error| ServerError::new(&what(), &error))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = format!("{} {}", text(&output.stderr), text(&output.stdout));
    Err(ServerError::new(&what(), &said))
}

/// Starts a server and waits until it accepts connections.
fn launch(
    directory: &Path,
    port: u16,
    tls: bool,
    options: &[String],
) -> Result<Process, ServerError> {
    let mut arguments: Vec<OsString> = Vec::new();
    // A sentinel expects its file as the first argument.
    let (file, rest) = match options.split_first() {
        Some((first, rest)) if !first.starts_with("--") => (Some(first), rest),
        _ => (None, options),
    };
    arguments.extend(file.map(OsString::from));
    let defaults = [
        ("--port", port.to_string()),
        ("--bind", "127.0.0.1".to_owned()),
        ("--dir", directory.to_string_lossy().into_owned()),
        ("--save", String::new()),
        ("--appendonly", "no".to_owned()),
        ("--daemonize", "no".to_owned()),
    ];
    for (name, value) in defaults {
        let is_sentinel_foe = matches!(name, "--save" | "--appendonly");
        if !(file.is_some() && is_sentinel_foe) {
            arguments.extend([OsString::from(name), OsString::from(value)]);
        }
    }
    if tls {
        arguments.extend(tls_arguments(directory, port));
    }
    arguments.extend(rest.iter().map(OsString::from));
    let program = match chosen(REDIS_SERVER, &[])? {
        Some(program) => program,
        None => program("redis-server", &[], PACKAGE)?,
    };
    let process = Process::start(&program, &arguments, &[], &directory.join("log"), None)?;
    // Another process may have bound the port, and answer.
    let own = format!("process_id:{}", process.id());
    process.wait_until(|| {
        let info = cli(port, tls, &["INFO"]).unwrap_or_default();
        let says = |text: &str| info.lines().any(|line| line.trim() == text);
        // While it reads its files it answers, but takes no steps.
        says(&own) && !says("loading:1")
    })
}

/// Options for TLS only, between servers too.
fn tls_arguments(directory: &Path, port: u16) -> impl Iterator<Item = OsString> {
    let pairs = [
        ("--port", "0".into()),
        ("--tls-port", port.to_string().into()),
        ("--tls-cert-file", directory.join(CHAIN).into_os_string()),
        ("--tls-key-file", directory.join(KEY).into_os_string()),
        ("--tls-ca-cert-file", directory.join(AUTHORITY).into_os_string()),
        ("--tls-auth-clients", "no".into()),
        ("--tls-replication", "yes".into()),
        ("--tls-cluster", "yes".into()),
    ];
    pairs.into_iter().flat_map(|(name, value)| [OsString::from(name), value])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_survives_a_kill_where_it_is_said_to() {
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let durable = RedisServer::start_with(&options).unwrap();
        let forgetful = RedisServer::start().unwrap();
        for server in [&durable, &forgetful] {
            assert_eq!(server.cli(&["SET", "a", "1"]).unwrap(), "OK");
            server.kill();
            assert!(server.cli(&["PING"]).is_err());
            server.restart().unwrap();
        }
        assert_eq!(durable.cli(&["GET", "a"]).unwrap(), "1");
        assert_eq!(forgetful.cli(&["GET", "a"]).unwrap(), "");
        assert_eq!(durable.info("persistence", "aof_enabled").unwrap(), "1");
    }

    #[test]
    fn a_wrong_option_shows_the_log() {
        let error = RedisServer::start_with(&["--no-such-option", "1"]).unwrap_err().to_string();
        assert!(error.contains("no-such-option"), "{error}");
    }
}
