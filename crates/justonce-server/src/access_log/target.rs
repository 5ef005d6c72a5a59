//! Where lines go.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::config::AccessLogTarget;

/// The access rights of a new file: its owner writes, its group may read.
const FILE_MODE: u32 = 0o640;

/// Standard output, or an open file.
#[derive(Debug)]
pub(super) struct Target {
    file: Option<(PathBuf, File)>,
    /// Whether a line may have been written in part.
    is_torn: bool,
}

impl Target {
    pub(super) fn open(target: &AccessLogTarget) -> io::Result<Self> {
        let file = match target {
            AccessLogTarget::Stdout => None,
            AccessLogTarget::File(path) => Some((path.clone(), append_to(path)?)),
        };
        Ok(Self { file, is_torn: false })
    }

    /// Opens the file again under its name: the old one may have been moved away. On failure the
    /// old one stays in use.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Some((path, file)) = &mut self.file {
            *file = append_to(path)?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Writes whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        // What follows a torn line must not become a part of it.
        let begin: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let written = match &mut self.file {
            None => {
                let mut out = io::stdout().lock();
                out.write_all(begin).and_then(|()| out.write_all(lines)).and_then(|()| out.flush())
            }
            Some((_, file)) => file.write_all(begin).and_then(|()| file.write_all(lines)),
        };
        self.is_torn = written.is_err();
        written
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)
}
