//! A backup as one stream.
//!
//! 1. The start: magic, 8 bytes; the length of all files together, 8.
//! 2. Files: `F`; the length of the name, 2 bytes; the file's length, 8; the name; the contents.
//! 3. The list: the same with `L`, at the end.
//!
//! Numbers are little endian. The list has the checksums: what breaks off before it is no backup.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::PathBuf;

use xxhash_rust::xxh3::Xxh3;

use super::list::{LIST, List, Listed};
use super::progress::{Counted, Progress};

pub(super) const MAGIC: [u8; 8] = *b"justbak1";
/// Magic and length.
pub(super) const START_BYTES: usize = 16;
/// Kind and lengths, without the name.
pub(super) const HEAD_BYTES: usize = 1 + 2 + 8;
pub(super) const FILE: u8 = b'F';
pub(super) const THE_LIST: u8 = b'L';
/// How much is read and sent at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file that is to be sent.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// The checksum that it must have, where the storage engine knows it.
    pub(super) wanted: Option<u128>,
}

/// Sends files and the list of them, and returns the list.
pub(super) fn write(
    sources: &[Source],
    mut list: List,
    out: &mut dyn Write,
    tell: &mut dyn FnMut(Progress),
) -> io::Result<List> {
    let total = sources.iter().map(|source| source.bytes).sum();
    let mut progress = Counted { now: Progress { done: 0, total }, tell };
    out.write_all(&MAGIC)?;
    out.write_all(&total.to_le_bytes())?;
    let mut buffer = vec![0; CHUNK_BYTES];
    for source in sources {
        head(FILE, &source.name, source.bytes, out)?;
        let sum = contents(source, &mut buffer, out, &mut progress)?;
        if source.wanted.is_some_and(|wanted| wanted != sum) {
            list.damaged.push(source.name.clone());
        }
        list.files.push(Listed { name: source.name.clone(), bytes: source.bytes, sum });
    }
    let text = list.to_text();
    head(THE_LIST, LIST, text.len() as u64, out)?;
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(list)
}

fn head(kind: u8, name: &str, bytes: u64, out: &mut dyn Write) -> io::Result<()> {
    let length = u16::try_from(name.len()).map_err(io::Error::other)?;
    out.write_all(&[kind])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&bytes.to_le_bytes())?;
    out.write_all(name.as_bytes())
}

fn contents(
    source: &Source,
    buffer: &mut [u8],
    out: &mut dyn Write,
    progress: &mut Counted<'_>,
) -> io::Result<u128> {
    let mut hasher = Xxh3::new();
    let mut file = File::open(&source.path)?.take(source.bytes);
    let mut left = source.bytes;
    while left > 0 {
        let count = file.read(buffer)?;
        let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else {
            let text = format!("{} became shorter while it was read", source.path.display());
            return Err(io::Error::other(text));
        };
        hasher.update(part);
        out.write_all(part)?;
        left -= part.len() as u64;
        progress.add(part.len() as u64);
    }
    Ok(hasher.digest128())
}
