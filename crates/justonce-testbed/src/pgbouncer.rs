//! A private PgBouncer in front of a private PostgreSQL.

use std::fmt::{self, Write as _};
use std::net::TcpStream;
use std::path::Path;

use tempfile::TempDir;

use super::port::on_free_port;
use super::postgres_user::{USER, give_away};
use super::{PostgresServer, Process, ServerError, program};

/// Where Debian installs it.
const PLACE: &str = "/usr/sbin";

/// How long a client keeps a connection to the server.
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

/// A private PgBouncer. Dropping the handle kills it.
pub struct PgBouncer {
    process: Process,
    port: u16,
    _directory: TempDir,
}

impl PgBouncer {
    /// Starts one in front of a server, with further settings of its section `[pgbouncer]`.
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
        let (process, port) = on_free_port(|port| {
            let file = directory.path().join("settings");
            let text = configured(server.port(), port, mode, &users, settings);
            std::fs::write(&file, text).map_err(failed)?;
            give_away(&file)?;
            let log = directory.path().join("log");
            let process = Process::start(&binary, &[file.into()], &[], &log, Some(USER))?;
            let process = process.wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok())?;
            Ok((process, port))
        })?;
        Ok(Self { process, port, _directory: directory })
    }

    /// The address of the server's database through this pooler.
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
        // Writing to a `String` does not fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}
