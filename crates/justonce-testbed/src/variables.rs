//! Environment variables that name other servers than those of the machine.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::ServerError;

/// The variable that names the directory of PostgreSQL's programs.
pub(super) const POSTGRES_BIN: &str = "JUSTONCE_POSTGRES_BIN";
/// The variable that names the program of the Redis server, or of a compatible one.
pub(super) const REDIS_SERVER: &str = "JUSTONCE_REDIS_SERVER";

/// The path in a variable, if it is set.
pub(super) fn chosen(variable: &str, must_hold: &[&str]) -> Result<Option<PathBuf>, ServerError> {
    let value = std::env::var_os(variable);
    value.map(|value| checked(variable, &value, must_hold)).transpose()
}

/// A program, or a directory that holds programs. There is no fallback: the tests must run on the
/// server that was named.
fn checked(variable: &str, value: &OsStr, must_hold: &[&str]) -> Result<PathBuf, ServerError> {
    let path = PathBuf::from(value);
    let what = format!("{variable} is `{}`", path.display());
    if path.is_relative() {
        let why = "it must be a whole path: tests of each crate run in a directory of their own";
        return Err(ServerError::new(&what, &why));
    }
    if must_hold.is_empty() && !path.is_file() {
        return Err(ServerError::new(&what, &"there is no such program"));
    }
    match must_hold.iter().find(|name| !path.join(name).is_file()) {
        Some(missing) => Err(ServerError::new(&what, &format!("there is no {missing} in it"))),
        None => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(value: &str, must_hold: &[&str]) -> String {
        checked("VARIABLE", value.as_ref(), must_hold).unwrap_err().to_string()
    }

    #[test]
    fn a_program_or_a_directory_of_programs_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("server");
        std::fs::write(&program, "").unwrap();
        assert_eq!(checked("V", program.as_os_str(), &[]).unwrap(), program);
        let taken = checked("V", directory.path().as_os_str(), &["server"]).unwrap();
        assert_eq!(taken, directory.path());
    }

    #[test]
    fn what_is_not_there_fails_and_names_the_variable() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_str().unwrap();
        assert!(complaint(&format!("{place}/server"), &[]).contains("no such program"));
        assert!(complaint(place, &[]).contains("no such program"), "a directory is none");
        assert!(complaint(place, &["initdb"]).contains("there is no initdb in it"));
        for nothing in ["", "bin/server"] {
            let said = complaint(nothing, &[]);
            assert!(said.contains("VARIABLE") && said.contains("a whole path"), "{said}");
        }
    }
}
