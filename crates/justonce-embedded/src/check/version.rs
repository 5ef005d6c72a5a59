//! The storage engine's files that say which other files there are: `current` and `v<number>`.
//!
//! Their format is that of version 3 of the engine, which `records/version` names.

use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

/// The file that names the version of a keyspace that counts.
pub(crate) const CURRENT: &str = "current";
/// Number, checksum, and the kind of the checksum.
const CURRENT_BYTES: usize = 8 + 16 + 1;
/// The end of a version file: magic, two tags, checksum, position and length of the contents.
const TRAILER_BYTES: usize = 4 + 1 + 1 + 16 + 8 + 8;
const TRAILER_MAGIC: [u8; 6] = *b"SFA!\x01\x00";
const CONTENTS_MAGIC: [u8; 4] = *b"TOC!";

/// What a keyspace consists of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) number: u64,
    /// Tables and blob files, each with the checksum of all its bytes.
    pub(super) files: Vec<(PathBuf, u128)>,
}

/// Why the version of a keyspace cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// This file is not there.
    Missing(PathBuf),
    /// This file does not hold what it must.
    Damaged(PathBuf),
    /// This file cannot be read.
    Io(PathBuf, io::Error),
}

/// Reads a whole file, which must be there.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    std::fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ReadError::Missing(path.to_owned()),
        _ => ReadError::Io(path.to_owned(), error),
    })
}

impl Version {
    /// The version of a keyspace that counts, if its files agree with each other.
    pub(super) fn of(keyspace: &Path) -> Result<Self, ReadError> {
        let current = keyspace.join(CURRENT);
        let pointer = read(&current)?;
        let Some((number, sum)) = pointed_at(&pointer) else {
            return Err(ReadError::Damaged(current));
        };
        let path = keyspace.join(format!("v{number}"));
        let bytes = read(&path)?;
        if xxh3_128(&bytes) != sum {
            return Err(ReadError::Damaged(path));
        }
        let Some(files) = listed(&bytes) else { return Err(ReadError::Damaged(path)) };
        let files = files.into_iter().map(|(folder, id, sum)| {
            let name = keyspace.join(folder).join(id.to_string());
            (name, sum)
        });
        Ok(Self { number, files: files.collect() })
    }
}

/// The name of the version file that counts, and the files that it lists.
pub(crate) fn pointed_to(keyspace: &Path) -> Result<(String, Vec<PathBuf>), ReadError> {
    let Version { number, files } = Version::of(keyspace)?;
    Ok((format!("v{number}"), files.into_iter().map(|(path, _)| path).collect()))
}

fn pointed_at(bytes: &[u8]) -> Option<(u64, u128)> {
    if bytes.len() != CURRENT_BYTES {
        return None;
    }
    let mut reader = Reader(bytes);
    let (number, sum) = (reader.u64()?, reader.u128()?);
    (reader.u8()? == 0).then_some((number, sum))
}

/// The files that a version lists: folder, number and checksum.
fn listed(bytes: &[u8]) -> Option<Vec<(&'static str, u64, u128)>> {
    let mut files = Vec::new();
    let mut tables = Reader(section(bytes, b"tables")?);
    for _ in 0..tables.u8()? {
        for _ in 0..tables.u8()? {
            for _ in 0..tables.u32()? {
                files.push(("tables", tables.u64()?, tables.checksum()?));
                let _seqno = tables.u64()?;
            }
        }
    }
    let mut blobs = Reader(section(bytes, b"blob_files")?);
    for _ in 0..blobs.u32()? {
        files.push(("blobs", blobs.u64()?, blobs.checksum()?));
    }
    Some(files)
}

/// A named part of a version file.
fn section<'a>(bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut trailer = Reader(bytes.get(bytes.len().checked_sub(TRAILER_BYTES)?..)?);
    if trailer.array::<6>()? != TRAILER_MAGIC {
        return None;
    }
    let (_sum, position) = (trailer.u128()?, trailer.u64()?);
    let mut contents = Reader(bytes.get(usize::try_from(position).ok()?..)?);
    if contents.array::<4>()? != CONTENTS_MAGIC {
        return None;
    }
    for _ in 0..contents.u32()? {
        let start = usize::try_from(contents.u64()?).ok()?;
        let length = usize::try_from(contents.u64()?).ok()?;
        let name_bytes = usize::from(contents.u16()?);
        if contents.bytes(name_bytes)? == wanted {
            return bytes.get(start..start.checked_add(length)?);
        }
    }
    None
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// A checksum of the one kind there is.
    fn checksum(&mut self) -> Option<u128> {
        (self.u8()? == 0).then(|| self.u128()).flatten()
    }
}
