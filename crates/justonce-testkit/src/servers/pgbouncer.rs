//! A private PgBouncer before a private PostgreSQL.

use std::fmt::{self, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::postgres::{USER, give_away};
use super::{PostgresServer, Process, ServerError, free_port, program};

/// Where Debian puts it, besides the usual places for programs.
const PLACE: &str = "/usr/sbin";
/// How often a new one is asked whether it is there, with a pause in between: half a minute.
const ASKED_AT_MOST: u32 = 1500;
/// The pause between two questions: nobody tells us when it is there.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How many ports are tried: another process may take one between its choice and its use.
const PORTS_TRIED: u32 = 3;

/// For how long a client keeps a connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// As long as the client is connected.
    Session,
    /// For one transaction.
    Transaction,
}

impl PoolMode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
        }
    }
}

/// A private PgBouncer. It ends with its handle.
pub struct PgBouncer {
    process: Process,
    port: u16,
    _directory: TempDir,
}

impl PgBouncer {
    /// Starts one before a server. More settings come by name, as in its section `[pgbouncer]`.
    ///
    /// # Errors
    ///
    /// If PgBouncer is not installed or does not start.
    pub fn start(
        server: &PostgresServer,
        mode: PoolMode,
        settings: &[(&str, &str)],
    ) -> Result<Self, ServerError> {
        let binary = program("pgbouncer", &[Path::new(PLACE)], "pgbouncer")?;
        let failed = |error: std::io::Error| ServerError::new("no directory", &error);
        let directory = tempfile::Builder::new().prefix("justonce-pgb-").tempdir();
        let directory = directory.map_err(failed)?;
        give_away(directory.path())?;
        let users = directory.path().join("users");
        std::fs::write(&users, "\"postgres\" \"\"\n").map_err(failed)?;
        give_away(&users)?;
        let mut complaint = None;
        for _ in 0..PORTS_TRIED {
            let port = free_port()?;
            let file = directory.path().join("settings");
            let text = configured(server.port(), port, mode, &users, settings);
            std::fs::write(&file, text).map_err(failed)?;
            give_away(&file)?;
            let log = directory.path().join("log");
            let mut process = Process::start(&binary, &[file.into()], &[], &log, Some(USER))?;
            match wait_for(&mut process, port) {
                Ok(()) => return Ok(Self { process, port, _directory: directory }),
                Err(error) => complaint = Some(error),
            }
        }
        Err(complaint.unwrap_or_else(|| ServerError::new("pgbouncer", &"no port was tried")))
    }

    /// The address of the server's database by way of this one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its process, to stop or pause it.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl fmt::Debug for PgBouncer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgBouncer").field("port", &self.port).finish_non_exhaustive()
    }
}

fn configured(
    server: u16,
    port: u16,
    mode: PoolMode,
    users: &Path,
    settings: &[(&str, &str)],
) -> String {
    let mut text = format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n\n[pgbouncer]\n\
         listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = trust\nauth_file = {}\npool_mode = {}\ndefault_pool_size = 50\n",
        users.display(),
        mode.as_str(),
    );
    for (name, value) in settings {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}

fn wait_for(process: &mut Process, port: u16) -> Result<(), ServerError> {
    for _ in 0..ASKED_AT_MOST {
        if !process.is_running() {
            return Err(process.complaint("it ended at once"));
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        std::thread::park_timeout(ASK_AGAIN_AFTER);
    }
    Err(process.complaint("it does not take connections"))
}
