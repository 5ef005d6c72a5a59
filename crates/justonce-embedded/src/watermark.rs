//! The number of the last committed batch, outside the storage engine.
//!
//! The engine recovers from a damaged journal by dropping the rest of it without a word. The
//! watermark is written after every commit, without a sync of its own: it may lag behind after a
//! power loss, but it is never ahead. A store that reopens below its watermark has lost what it
//! acknowledged, and says so instead of going on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::files::private;

const FILE: &str = "watermark";
const BYTES: usize = 16;

/// The number of the last batch that was committed, in a file of its own.
#[derive(Debug)]
pub(crate) struct Watermark {
    file: File,
}

impl Watermark {
    /// Opens the file and reads the mark; zero if there is none or it was cut off in the middle.
    pub(crate) fn open(directory: &Path) -> io::Result<(Self, u64)> {
        let path = directory.join(FILE);
        let file = private().read(true).write(true).create(true).truncate(false).open(path)?;
        let mark = read_from(&file);
        Ok((Self { file }, mark))
    }

    /// Reads the mark, and makes no file.
    pub(crate) fn read(directory: &Path) -> io::Result<u64> {
        match File::open(directory.join(FILE)) {
            Ok(file) => Ok(read_from(&file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Writes the mark.
    pub(crate) fn set(&self, batch: u64) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        let halves = batch.to_le_bytes().into_iter().chain((!batch).to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(halves) {
            *to = from;
        }
        self.file.write_all_at(&bytes, 0)
    }
}

fn read_from(file: &File) -> u64 {
    let mut bytes = [0; BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => parse(bytes).unwrap_or(0),
        Err(_) => 0,
    }
}

/// The number and its complement, so that a torn or foreign write is noticed.
fn parse(bytes: [u8; BYTES]) -> Option<u64> {
    let (number, complement) = bytes.split_first_chunk::<8>()?;
    let number = u64::from_le_bytes(*number);
    (complement == (!number).to_le_bytes()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_a_torn_one_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let (watermark, mark) = Watermark::open(directory.path()).unwrap();
        assert_eq!(mark, 0);
        watermark.set(77).unwrap();
        assert_eq!(Watermark::open(directory.path()).unwrap().1, 77);
        watermark.file.write_all_at(b"x", 3).unwrap();
        assert_eq!(Watermark::open(directory.path()).unwrap().1, 0);
    }
}
