//! The list of a backup: what it consists of, and when it was made.

use std::fmt::Write as _;
use std::io;
use std::path::{Component, Path};

use justonce_core::Timestamp;
use xxhash_rust::xxh3::xxh3_128;

use crate::check::BACKUP_LIST;

/// The list, in a backup's directory. It is written last: without it there is no backup.
pub(super) const LIST: &str = BACKUP_LIST;
/// The folder with the storage engine's files. It has another name than in a store, so that a
/// backup does not open as one.
pub(super) const ENGINE: &str = "engine";
/// The store's own manifest.
pub(super) const MANIFEST: &str = "manifest";
const FIRST_LINE: &str = "justonce backup 1";

/// What a backup consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    /// The machine's time when it was made: what was acknowledged before is in it.
    pub(super) taken_at: Timestamp,
    /// The last batch of the write-ahead log that is in it.
    pub(super) batch: u64,
    pub(super) files: Vec<Listed>,
    /// Those that were damaged in the store already.
    pub(super) damaged: Vec<String>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its path below the backup's directory.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sum: u128,
}

impl List {
    /// The list of a directory; nothing if there is none.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Result<Self, &'static str>>> {
        match std::fs::read(directory.join(LIST)) {
            Ok(bytes) => Ok(Some(Self::parse(&bytes))),
            // Operators may call a folder so.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn to_text(&self) -> String {
        let (taken_at, batch) = (self.taken_at.as_millis(), self.batch);
        let mut text = format!("{FIRST_LINE}\ntaken_at {taken_at}\nbatch {batch}\n");
        for Listed { name, bytes, sum } in &self.files {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "file {bytes} {sum:032x} {name}");
        }
        for name in &self.damaged {
            let _ = writeln!(text, "damaged {name}");
        }
        let sum = xxh3_128(text.as_bytes());
        let _ = writeln!(text, "sum {sum:032x}");
        text
    }

    /// Reads a list.
    ///
    /// # Errors
    ///
    /// If it was not written like this, or has changed since.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        const DAMAGED: &str = "its list of files is damaged";
        let text = std::str::from_utf8(bytes).map_err(|_| DAMAGED)?;
        let whole = text.strip_suffix('\n').and_then(|text| text.rsplit_once("sum "));
        let (body, sum) = whole.ok_or(DAMAGED)?;
        if u128::from_str_radix(sum, 16) != Ok(xxh3_128(body.as_bytes())) {
            return Err(DAMAGED);
        }
        let mut lines = body.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err("it was made by another release of Justonce");
        }
        let mut list = Self::default();
        for line in lines {
            list.add(line).ok_or(DAMAGED)?;
        }
        Ok(list)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "taken_at" => self.taken_at = Timestamp::from_millis(rest.parse().ok()?),
            "batch" => self.batch = rest.parse().ok()?,
            "file" => {
                let (bytes, rest) = rest.split_once(' ')?;
                let (sum, name) = rest.split_once(' ')?;
                let sum = u128::from_str_radix(sum, 16).ok()?;
                let name = Some(name).filter(|name| is_name(name))?.to_owned();
                self.files.push(Listed { name, bytes: bytes.parse().ok()?, sum });
            }
            "damaged" => self.damaged.push(rest.to_owned()),
            _ => return None,
        }
        Some(())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Whether a file of a backup may be called so: what arrives over a network must not lead out of
/// the directory, or stand for anything else in it.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    let path = Path::new(name);
    let below = path.components().all(|part| matches!(part, Component::Normal(_)));
    let ours = name == MANIFEST || path.parent().is_some_and(|p| p.starts_with(ENGINE));
    below && ours && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_and_a_damaged_one_is_not_believed() {
        let file = |name: &str| Listed { name: name.to_owned(), bytes: 5, sum: u128::MAX };
        let files = vec![file(MANIFEST), file("engine/keyspaces/1/tables/2")];
        let damaged = vec![MANIFEST.to_owned()];
        let list = List { taken_at: Timestamp::from_millis(7), batch: 9, files, damaged };
        let text = list.to_text();
        assert_eq!(List::parse(text.as_bytes()), Ok(list));
        for at in 0..text.len() {
            assert!(List::parse(&text.as_bytes()[..at]).is_err(), "cut at {at}");
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert!(List::parse(&damaged).is_err(), "damaged at {at}");
        }
    }

    #[test]
    fn names_do_not_lead_out_of_the_directory() {
        for name in ["manifest", "engine/0.jnl", "engine/keyspaces/1/v7"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "backup",
            "engine",
            "/etc/passwd",
            "engine/../x",
            "../x",
            "engine/a b",
            "wal/0.wal",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
