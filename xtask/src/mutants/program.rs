//! Copies of the test programs in which the text of a file is replaced.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cmd::Cmd;

/// A copy of a test program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Its bytes as text of the same length, to search in.
    bytes: String,
}

/// Places in the programs where the text of a file lies.
#[derive(Debug)]
pub(super) struct Places(Vec<(PathBuf, Vec<usize>)>);

/// Builds the test programs of a package. The build is the usual one.
pub(super) fn build(package: &str) -> Result<Vec<PathBuf>> {
    let line = ["test", "--no-run", "--all-features", "--locked", "--message-format", "json"];
    let build = Cmd::new("cargo", &line).args(&["--package", package]);
    eprintln!("$ {build}");
    let messages = build.stdout()?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs: Vec<PathBuf> = messages
        .filter(|message| message.pointer("/profile/test") == Some(&Value::Bool(true)))
        .filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
        .collect();
    ensure!(!programs.is_empty(), "{package} has no test programs");
    Ok(programs)
}

impl Program {
    /// Copies a program into a directory.
    pub(super) fn copy(from: &Path, directory: &Path) -> Result<Self> {
        let path = directory.join(from.file_name().context("a program has a name")?);
        let failed = || format!("cannot copy {} to {}", from.display(), path.display());
        fs::create_dir_all(directory).with_context(failed)?;
        // A copy that is still running cannot be overwritten.
        let _ = fs::remove_file(&path);
        fs::copy(from, &path).with_context(failed)?;
        let bytes = fs::read(from).with_context(failed)?;
        let ascii = |byte: u8| if byte.is_ascii() { char::from(byte) } else { '\u{1a}' };
        Ok(Self { path, bytes: bytes.into_iter().map(ascii).collect() })
    }
}

impl Places {
    /// Finds the text of a file.
    pub(super) fn find(programs: &[Program], text: &str) -> Result<Self> {
        ensure!(text.is_ascii(), "the text of a script is ASCII");
        let found: Vec<(PathBuf, Vec<usize>)> = programs
            .iter()
            .map(|program| {
                let at = program.bytes.match_indices(text).map(|(at, _)| at).collect();
                (program.path.clone(), at)
            })
            .collect();
        let count: usize = found.iter().map(|(_, at)| at.len()).sum();
        ensure!(count > 0, "the test programs do not contain the text of the file");
        Ok(Self(found))
    }

    /// Writes a text of the same length to all places.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        for (path, places) in self.0.iter().filter(|(_, places)| !places.is_empty()) {
            let failed = || format!("cannot change {}", path.display());
            let mut file = OpenOptions::new().write(true).open(path).with_context(failed)?;
            for at in places {
                let at = SeekFrom::Start(u64::try_from(*at)?);
                file.seek(at).with_context(failed)?;
                file.write_all(text.as_bytes()).with_context(failed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_copies_of_a_text_are_replaced_and_put_back() {
        let directory =
            std::env::temp_dir().join(format!("justonce-program-{}", std::process::id()));
        let from = directory.join("from");
        fs::create_dir_all(&directory).unwrap();
        fs::write(&from, b"\xff return 1 \xfe return 1").unwrap();
        let program = Program::copy(&from, &directory.join("copy")).unwrap();
        let places = Places::find(std::slice::from_ref(&program), "return 1").unwrap();
        places.write("return 2").unwrap();
        assert_eq!(fs::read(&program.path).unwrap(), b"\xff return 2 \xfe return 2");
        places.write("return 1").unwrap();
        assert_eq!(fs::read(&program.path).unwrap(), fs::read(&from).unwrap());
        assert!(Places::find(std::slice::from_ref(&program), "return 3").is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
