//! One private server process.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often a condition is checked, with a pause in between: half a minute.
const CHECKS: u32 = 1500;
/// The pause between two checks: servers do not signal when they are ready.
const PAUSE: Duration = Duration::from_millis(20);
/// How much of a server's log an error shows.
const SHOWN_LOG_BYTES: usize = 2000;

/// Why a private server does not run.
#[derive(Clone, Debug)]
pub struct ServerError(String);

impl ServerError {
    /// What went wrong and why.
    pub fn new(what: &str, why: &dyn fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServerError {}

/// Finds a program in `PATH` and in `also`.
///
/// # Errors
///
/// If it is missing; the error names its Debian package.
pub fn program(name: &str, also: &[&Path], package: &str) -> Result<PathBuf, ServerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = std::env::split_paths(&path);
    let places = usual.chain(also.iter().map(|place| place.to_path_buf()));
    let found = places.map(|place| place.join(name)).find(|candidate| candidate.is_file());
    found.ok_or_else(|| {
        let advice = format!("run `cargo xtask services`, or install the package {package}");
        ServerError::new(&format!("{name} is not installed"), &advice)
    })
}

/// A running server. Dropping it kills it, and so does the end of this process, even by SIGKILL.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output goes to `log`. If this process runs as root, the program runs
    /// as `user`: some servers refuse to run as root.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        variables: &[(&str, OsString)],
        log: &Path,
        user: Option<&str>,
    ) -> Result<Self, ServerError> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let failed = |error: io::Error| ServerError::new(&format!("cannot start {name}"), &error);
        let output = File::options().create(true).append(true).open(log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        // The kernel sends the signal to the server when this process ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = user.filter(|_| nix::unistd::geteuid().is_root()) {
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        }
        command.arg("--").arg(program).args(arguments);
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = spawn(command).map_err(failed)?;
        Ok(Self { name, child, log: log.to_path_buf() })
    }

    /// The id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it is ready.
    pub(super) fn wait_until(
        mut self,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<Self, ServerError> {
        for _ in 0..CHECKS {
            if !self.is_running() {
                return Err(self.complaint("it ended at once"));
            }
            if is_ready() {
                return Ok(self);
            }
            thread::park_timeout(PAUSE);
        }
        Err(self.complaint("it does not answer"))
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), ServerError> {
        let id = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
        let what = || format!("cannot send {signal} to {}", self.name);
        kill(Pid::from_raw(id), signal).map_err(|error| ServerError::new(&what(), &error))
    }

    /// Suspends it, with SIGSTOP.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes it.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.signal(Signal::SIGCONT)
    }

    /// Kills it with SIGKILL and waits until it has ended.
    pub fn kill(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Shuts it down with SIGTERM and waits until it has ended.
    ///
    /// # Errors
    ///
    /// If it cannot be signalled.
    pub fn stop(&mut self, signal: Signal) -> Result<ExitStatus, ServerError> {
        if self.is_running() {
            self.signal(signal)?;
        }
        let what = format!("cannot wait for {}", self.name);
        self.child.wait().map_err(|error| ServerError::new(&what, &error))
    }

    /// An error with the state of the process and the end of its log.
    #[must_use]
    pub fn complaint(&mut self, what: &str) -> ServerError {
        let state = match self.child.try_wait() {
            Ok(Some(status)) => match status.signal() {
                Some(signal) => format!("it was ended by signal {signal}"),
                None => format!("it ended with {status}"),
            },
            Ok(None) => "it is running".to_owned(),
            Err(error) => error.to_string(),
        };
        let log = std::fs::read(&self.log).unwrap_or_default();
        let end = log.get(log.len().saturating_sub(SHOWN_LOG_BYTES)..).unwrap_or_default();
        let why = format!("{state}; its log ends:\n{}", String::from_utf8_lossy(end));
        ServerError::new(&format!("{}: {what}", self.name), &why)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Checks a condition until it holds.
pub(super) fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, ServerError>,
) -> Result<T, ServerError> {
    let mut last = String::from("it did not happen in time");
    for _ in 0..CHECKS {
        match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => last = error.to_string(),
        }
        thread::park_timeout(PAUSE);
    }
    Err(ServerError::new(what, &last))
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts processes from one thread that lives as long as this process: the kernel sends the signal
/// when the *thread* that started the child ends.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in taken {
                // If the receiver is gone, dropping the handle kills the child.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, started) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts servers is gone");
    let orders = starter.lock().unwrap_or_else(PoisonError::into_inner).clone();
    orders.send((command, answer)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_what_to_install() {
        let error = program("no-such-server", &[], "no-such-package").unwrap_err().to_string();
        assert!(error.contains("no-such-package"), "{error}");
    }

    #[test]
    fn a_server_ends_with_its_handle() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let sleep = program("sleep", &[], "coreutils").unwrap();
        let mut process = Process::start(&sleep, &["600".into()], &[], &log, None).unwrap();
        assert!(process.is_running());
        let proc = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(proc.exists());
        drop(process);
        assert!(!proc.exists());
    }

    #[test]
    fn a_complaint_shows_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let ls = program("ls", &[], "coreutils").unwrap();
        let arguments = ["/no/such/place".into()];
        let mut process = Process::start(&ls, &arguments, &[], &log, None).unwrap();
        process.child.wait().unwrap();
        let complaint = process.complaint("it does not answer").to_string();
        assert!(complaint.contains("/no/such/place"), "{complaint}");
    }
}
