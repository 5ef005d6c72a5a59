//! Data directories for private PostgreSQL servers. `initdb` takes seconds, so it runs once per
//! machine, and every server gets a copy.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;

use super::postgres_user::{USER, give_away, output};
use super::variables::{POSTGRES_BIN, chosen};
use super::{ServerError, program};

/// Where distributions put the server's programs, newest last.
const PLACES: &str = "/usr/lib/postgresql";
/// The client programs. Those of one release work with servers of any other.
const CLIENTS: [&str; 2] = ["psql", "pg_isready"];

/// The programs of one release of PostgreSQL.
#[derive(Clone, Debug)]
pub(super) struct Binaries {
    /// The directory of the server's programs.
    server: PathBuf,
    /// The directory of the client programs: some builds of a server have none.
    clients: PathBuf,
}

impl Binaries {
    /// The programs that the environment names, or else the newest release installed.
    pub(super) fn find() -> Result<Self, ServerError> {
        let server = match chosen(POSTGRES_BIN, &["initdb", "postgres"])? {
            Some(server) => server,
            None => installed()?,
        };
        let has_clients = CLIENTS.iter().all(|client| server.join(client).is_file());
        let clients = if has_clients { server.clone() } else { installed()? };
        Ok(Self { server, clients })
    }

    /// One of the programs.
    pub(super) fn tool(&self, name: &str) -> PathBuf {
        if CLIENTS.contains(&name) { self.clients.join(name) } else { self.server.join(name) }
    }
}

/// The directory of the newest release that is installed.
fn installed() -> Result<PathBuf, ServerError> {
    let places = fs::read_dir(PLACES).into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = places.map(|place| place.path().join("bin")).collect();
    places.sort();
    let also: Vec<&Path> = places.iter().rev().map(PathBuf::as_path).collect();
    let initdb = program("initdb", &also, "postgresql")?;
    // A link to it is not in the directory of the other programs.
    let initdb = initdb.canonicalize().unwrap_or(initdb);
    Ok(initdb.parent().map(Path::to_path_buf).unwrap_or_default())
}

/// Creates a data directory: a copy of this machine's template.
pub(super) fn cluster(binaries: &Binaries, data: &Path) -> Result<(), ServerError> {
    let template = template(binaries)?;
    let mut copy = as_user("cp");
    copy.arg("-R").arg(&template).arg(data);
    output(copy).map(drop)
}

/// The template, created if there is none, under a lock.
fn template(binaries: &Binaries) -> Result<PathBuf, ServerError> {
    let version = output({
        let mut command = Command::new(binaries.tool("postgres"));
        command.arg("--version");
        command
    })?;
    let version: String = version.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("justonce-pg-template-{}-{version}", geteuid());
    let home = std::env::temp_dir().join(name);
    let failed = |error: std::io::Error| ServerError::new("no template cluster", &error);
    fs::create_dir_all(&home).map_err(failed)?;
    let lock = File::create(home.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let (made, making) = (home.join("data"), home.join("making"));
    if made.exists() {
        return Ok(made);
    }
    give_away(&home)?;
    if making.exists() {
        fs::remove_dir_all(&making).map_err(failed)?;
    }
    let mut initdb = as_user(&binaries.tool("initdb").to_string_lossy());
    initdb.args(["--auth", "trust", "--username", "postgres", "--encoding", "UTF8"]);
    initdb.args(["--locale", "C", "--no-sync", "--pgdata"]).arg(&making);
    output(initdb)?;
    fs::rename(&making, &made).map_err(failed)?;
    Ok(made)
}

/// A command that runs as the server's user.
fn as_user(program: &str) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--", program]);
    command
}
