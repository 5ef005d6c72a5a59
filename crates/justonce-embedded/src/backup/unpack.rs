//! The receiving end of a backup: the stream becomes a directory.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::archive::{FILE, HEAD_BYTES, MAGIC, START_BYTES, THE_LIST};
use super::error::BackupError;
use super::list::{ENGINE, LIST, List, Listed, MANIFEST, is_name};
use super::progress::Progress;
use super::take::BackupReport;
use crate::files::{
    LOST_AND_FOUND, create_durable_folder, create_folder, create_private, is_unused, private,
    sync_directory, sync_if_readable,
};

/// The list while it is written. It is there from the beginning: one backup has a directory.
const NEW_LIST: &str = "backup.new";
/// The longest list: some hundred thousand files.
const MAX_LIST_BYTES: u64 = 64 * 1024 * 1024;

/// Writes a backup into a directory, as its stream arrives: everything that is written to it.
///
/// The directory must be empty, or not exist. One that is dropped before it is
/// [finished](Unpacker::finish) removes what it has written.
#[derive(Debug)]
pub struct Unpacker {
    directory: PathBuf,
    /// Whether the directory itself goes, if the backup does not come to its end.
    made: bool,
    part: Part,
    received: Vec<Listed>,
    progress: Progress,
    list: Option<List>,
    finished: bool,
}

/// What the next bytes belong to.
#[derive(Debug)]
enum Part {
    Start(Vec<u8>),
    Head(Vec<u8>),
    File(Receiving),
    List { bytes: u64, text: Vec<u8> },
    End,
}

struct Receiving {
    name: String,
    bytes: u64,
    left: u64,
    file: File,
    sum: Box<Xxh3>,
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Begins a backup in a directory.
    ///
    /// # Errors
    ///
    /// If it is not empty, or cannot be made.
    pub fn new(directory: impl AsRef<Path>) -> Result<Self, BackupError> {
        let directory = directory.as_ref().to_owned();
        let io = |error| BackupError::io("cannot use", &directory, error);
        let occupied = || BackupError::Occupied { directory: directory.clone(), what: "something" };
        let made = !directory.try_exists().map_err(io)?;
        if !made && !is_unused(&directory).map_err(io)? {
            return Err(occupied());
        }
        create_durable_folder(&directory).map_err(io)?;
        match claim(&directory, is_alone) {
            Ok(true) => {}
            Ok(false) => return Err(occupied()),
            Err(error) => {
                if made {
                    // Unless somebody else has put something into it.
                    let _ = std::fs::remove_dir(&directory);
                }
                return Err(io(error));
            }
        }
        Ok(Self {
            directory,
            made,
            part: Part::Start(Vec::new()),
            received: Vec::new(),
            progress: Progress::default(),
            list: None,
            finished: false,
        })
    }

    /// How far it is.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// Ends the backup: from here on it is one.
    ///
    /// # Errors
    ///
    /// If the stream was not whole, or the disk is full. Then nothing remains.
    pub fn finish(mut self) -> Result<BackupReport, BackupError> {
        let Some(list) = self.list.take() else {
            let what = "it broke off before its end";
            return Err(BackupError::not_a_backup(&self.directory, what));
        };
        self.seal(&list)
            .map_err(|error| BackupError::io("cannot write", &self.directory, error))?;
        self.finished = true;
        Ok(BackupReport::of(&list))
    }

    fn seal(&self, list: &List) -> io::Result<()> {
        let mut folders: Vec<PathBuf> = list
            .files
            .iter()
            .flat_map(|file| Path::new(&file.name).ancestors().skip(1))
            .map(|folder| self.directory.join(folder))
            .collect();
        folders.sort_unstable();
        folders.dedup();
        folders.iter().try_for_each(|folder| sync_directory(folder))?;
        let new = self.directory.join(NEW_LIST);
        let mut file = create_private(&new)?;
        file.write_all(list.to_text().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, self.directory.join(LIST))?;
        sync_directory(&self.directory)?;
        match self.directory.canonicalize()?.parent() {
            Some(parent) => sync_if_readable(parent),
            None => Ok(()),
        }
    }

    /// Takes the next bytes; returns those that are left.
    fn take<'b>(&mut self, bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        match &mut self.part {
            Part::Start(start) => {
                let Some(rest) = fill(start, START_BYTES, bytes) else { return Ok(&[]) };
                let (magic, total) = start.split_first_chunk::<8>().ok_or_else(foreign)?;
                if *magic != MAGIC {
                    return Err(foreign());
                }
                let total = <[u8; 8]>::try_from(total).map_err(|_| foreign())?;
                self.progress.total = u64::from_le_bytes(total);
                self.part = Part::Head(Vec::new());
                Ok(rest)
            }
            Part::Head(head) => {
                let Some(rest) = fill(head, HEAD_BYTES, bytes) else { return Ok(&[]) };
                let (kind, name, length) = numbers(head).ok_or_else(foreign)?;
                let Some(rest) = fill(head, HEAD_BYTES + name, rest) else { return Ok(&[]) };
                let name = head.get(HEAD_BYTES..).map(<[u8]>::to_vec).unwrap_or_default();
                let name = String::from_utf8(name).map_err(|_| foreign())?;
                self.part = self.begin(kind, name, length)?;
                self.end_if_empty()?;
                Ok(rest)
            }
            Part::File(receiving) => {
                let most = usize::try_from(receiving.left).unwrap_or(usize::MAX);
                let (now, rest) = bytes.split_at(most.min(bytes.len()));
                receiving.file.write_all(now)?;
                receiving.sum.update(now);
                receiving.left -= now.len() as u64;
                self.progress.done += now.len() as u64;
                self.end_if_empty()?;
                Ok(rest)
            }
            Part::List { bytes: length, text } => {
                let length = usize::try_from(*length).unwrap_or(usize::MAX);
                let Some(rest) = fill(text, length, bytes) else { return Ok(&[]) };
                let list = List::parse(text).map_err(io::Error::other)?;
                if list.files != self.received {
                    return Err(io::Error::other("what arrived is not what was sent"));
                }
                self.list = Some(list);
                self.part = Part::End;
                Ok(rest)
            }
            Part::End => Err(foreign()),
        }
    }

    fn begin(&self, kind: u8, name: String, bytes: u64) -> io::Result<Part> {
        match kind {
            FILE if is_name(&name) => {
                let path = self.directory.join(&name);
                let mut folder = self.directory.clone();
                for part in Path::new(&name).parent().into_iter().flat_map(Path::components) {
                    folder.push(part);
                    create_folder(&folder)?;
                }
                let file = create_private(&path)?;
                let sum = Box::new(Xxh3::new());
                Ok(Part::File(Receiving { name, bytes, left: bytes, file, sum }))
            }
            THE_LIST if name == LIST && bytes <= MAX_LIST_BYTES => {
                Ok(Part::List { bytes, text: Vec::new() })
            }
            _ => Err(foreign()),
        }
    }

    /// Ends a file of which everything has arrived.
    fn end_if_empty(&mut self) -> io::Result<()> {
        let Part::File(Receiving { left: 0, .. }) = &self.part else { return Ok(()) };
        let Part::File(whole) = std::mem::replace(&mut self.part, Part::Head(Vec::new())) else {
            return Ok(());
        };
        whole.file.sync_all()?;
        let Receiving { name, bytes, sum, .. } = whole;
        self.received.push(Listed { name, bytes, sum: sum.digest128() });
        Ok(())
    }

    /// Removes what was written; last the file by which others see that it is not theirs.
    fn remove(&self) -> io::Result<()> {
        remove_if_there(std::fs::remove_dir_all(self.directory.join(ENGINE)))?;
        for name in [MANIFEST, LIST, NEW_LIST] {
            remove_if_there(std::fs::remove_file(self.directory.join(name)))?;
        }
        if self.made { std::fs::remove_dir(&self.directory) } else { Ok(()) }
    }
}

fn remove_if_there(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the list in a directory: several may find it empty at once, and one of them makes this
/// file. Whether that is this one; otherwise nothing of it remains.
fn claim(directory: &Path, is_alone: impl Fn(&Path) -> io::Result<bool>) -> io::Result<bool> {
    let list = directory.join(NEW_LIST);
    match private().write(true).create_new(true).open(&list) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        opened => drop(opened?),
    }
    // Another may have come to its end since.
    let alone = is_alone(directory);
    if !matches!(alone, Ok(true)) {
        std::fs::remove_file(&list)?;
    }
    alone
}

/// Whether nothing has been written beside the list that is being made.
fn is_alone(directory: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name != NEW_LIST && name != LOST_AND_FOUND {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Write for Unpacker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = self.take(rest)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        if !self.finished {
            // It is no backup either way.
            let _ = self.remove();
        }
    }
}

/// Fills a buffer up to a length; the bytes that are left once it is full.
fn fill<'b>(buffer: &mut Vec<u8>, length: usize, bytes: &'b [u8]) -> Option<&'b [u8]> {
    let missing = length.saturating_sub(buffer.len());
    let (now, rest) = bytes.split_at(missing.min(bytes.len()));
    buffer.extend_from_slice(now);
    (buffer.len() >= length).then_some(rest)
}

/// The kind of a part, the length of its name and its own.
fn numbers(head: &[u8]) -> Option<(u8, usize, u64)> {
    let (kind, rest) = head.split_first()?;
    let (name, rest) = rest.split_first_chunk::<2>()?;
    let (length, _) = rest.split_first_chunk::<8>()?;
    Some((*kind, usize::from(u16::from_le_bytes(*name)), u64::from_le_bytes(*length)))
}

fn foreign() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "this is not the stream of a backup")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in a directory.
    fn names(directory: &Path) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_directory_that_cannot_be_looked_into_is_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let failed = claim(place, |_| Err(io::Error::other("no more files can be opened")));
        assert!(failed.is_err());
        assert_eq!(names(place), [""; 0]);
        assert!(!claim(place, |_| Ok(false)).unwrap());
        assert_eq!(names(place), [""; 0]);
        assert!(claim(place, is_alone).unwrap());
        assert_eq!(names(place), [NEW_LIST]);
        // Whoever comes second leaves it to the first.
        assert!(!claim(place, is_alone).unwrap());
        assert_eq!(names(place), [NEW_LIST]);
    }
}
