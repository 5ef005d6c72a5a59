//! The user that PostgreSQL's programs run as, and running them to their end.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{User, geteuid};

use super::ServerError;

/// The user of the server if this process runs as root: PostgreSQL refuses to run as root.
pub(super) const USER: &str = "postgres";

/// Changes the owner of a file or directory to the server's user.
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
