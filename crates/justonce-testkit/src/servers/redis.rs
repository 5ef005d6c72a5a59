//! A private Redis server.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::authority::{AUTHORITY, CHAIN, KEY};
use super::chosen::{REDIS_SERVER, chosen};
use super::{Certificate, Process, ServerError, free_port, program};

/// The Debian package that brings the programs.
const PACKAGE: &str = "redis-server";
/// How often something is looked at until it is as it should be.
const LOOKS: u32 = 1500;
/// How long between two looks: servers tell nobody when they are ready.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How many ports are tried: another process may take one before the server does.
const PORTS_TRIED: u32 = 10;

/// A private Redis server with a directory and a port of its own. It ends with this handle.
///
/// ```no_run
/// use justonce_testkit::servers::RedisServer;
///
/// # fn main() -> Result<(), justonce_testkit::servers::ServerError> {
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

    /// Starts a server that takes connections with TLS, and no others.
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
        let mut last = None;
        for _ in 0..PORTS_TRIED {
            let port = free_port()?;
            let options = options(directory.path())?;
            let mut process = launch(directory.path(), port, tls, &options)?;
            match wait_until_ready(&mut process, port, tls) {
                Ok(()) => {
                    let process = Mutex::new(process);
                    return Ok(Self { process, port, tls, options, directory });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ServerError::new("redis-server", &"no port was tried")))
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

    /// What `redis-cli` prints for a command, without the line's end.
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

    /// Kills the server, as `kill -9` does, and waits until it is gone.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Asks the server to end, as an operator does, and waits until it has.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    pub fn stop(&self) -> Result<(), ServerError> {
        self.process().stop(Signal::SIGTERM).map(drop)
    }

    /// Starts the server again, after a kill or a stop, on its port and with what is on its disk.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn restart(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        process.kill();
        *process = launch(self.directory.path(), self.port, self.tls, &self.options)?;
        wait_until_ready(&mut process, self.port, self.tls)
    }

    /// Stops it where it stands, as SIGSTOP does.
    ///
    /// # Errors
    ///
    /// If the process is gone.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.process().pause()
    }

    /// Lets it go on.
    ///
    /// # Errors
    ///
    /// If the process is gone.
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

/// How `redis-cli` is told to speak TLS: it need not know the server.
pub(super) const CLI_TLS: &[&str] = &["--tls", "--insecure"];

/// What `redis-cli` prints for a command sent to a port.
pub(super) fn cli(port: u16, tls: bool, arguments: &[&str]) -> Result<String, ServerError> {
    let port = port.to_string();
    let mut all = vec!["-p", port.as_str(), "-e"];
    all.extend_from_slice(if tls { CLI_TLS } else { &[] });
    all.extend_from_slice(arguments);
    run_cli(&all)
}

/// What `redis-cli` prints.
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

/// Looks until something is as it should be. Servers have no other way to say so.
pub(super) fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, ServerError>,
) -> Result<T, ServerError> {
    let mut last = String::from("it did not become so in time");
    for _ in 0..LOOKS {
        match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => last = error.to_string(),
        }
        thread::park_timeout(LOOK_AGAIN_AFTER);
    }
    Err(ServerError::new(what, &last))
}

fn launch(
    directory: &Path,
    port: u16,
    tls: bool,
    options: &[String],
) -> Result<Process, ServerError> {
    let mut arguments: Vec<OsString> = Vec::new();
    // A sentinel wants its file first.
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
    Process::start(&program, &arguments, &[], &directory.join("log"), None)
}

/// With TLS, and only so; among servers too.
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

fn wait_until_ready(process: &mut Process, port: u16, tls: bool) -> Result<(), ServerError> {
    let ready = until("it does not answer", || {
        if !process.is_running() {
            return Ok(Some(false));
        }
        let id = cli(port, tls, &["INFO", "server"])?;
        // Another server may have taken the port.
        let own = format!("process_id:{}", process.id());
        Ok(Some(id.lines().any(|line| line.trim() == own)))
    });
    match ready {
        Ok(true) => Ok(()),
        Ok(false) => Err(process.complaint("it does not have its port")),
        Err(error) => Err(process.complaint(&error.to_string())),
    }
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
