//! The end of the storage engine's journal, as a power cut may leave it.
//!
//! The engine drops a last batch that ends too early. One of which a part in the middle is lost,
//! and not the end, it takes for damage, and does not open. But the parts of a file that was not
//! synced are written in any order. So such a batch is cut off, with all that may follow it. What
//! that loses must be in the write-ahead log; this is checked afterwards, as for a batch that the
//! engine drops.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// What each entry of a journal begins with.
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
/// What a batch ends with.
const TRAILER: [u8; 4] = *b"FJL\x03";

/// A journal whose end is to be cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TornEnd {
    /// Its name in the engine's folder.
    name: PathBuf,
    /// The length of its whole batches.
    bytes: u64,
}

impl TornEnd {
    /// Looks for it in the newest journal: the engine synced the others before it began the next.
    pub(super) fn find(engine: &Path) -> io::Result<Option<Self>> {
        let mut newest: Option<(u64, PathBuf)> = None;
        for entry in std::fs::read_dir(engine)? {
            let name = PathBuf::from(entry?.file_name());
            let number = name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse().ok());
            if let Some(number) = number.filter(|n| newest.as_ref().is_none_or(|(o, _)| n > o)) {
                newest = Some((number, name));
            }
        }
        let Some((_, name)) = newest else { return Ok(None) };
        let journal = std::fs::read(engine.join(&name))?;
        let bytes = whole_batches(&journal) as u64;
        Ok((bytes < journal.len() as u64).then_some(Self { name, bytes }))
    }

    /// Cuts it off.
    pub(crate) fn cut_off(&self, engine: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(engine.join(&self.name))?;
        file.set_len(self.bytes)?;
        file.sync_all()
    }
}

/// The length of the whole batches at the start.
fn whole_batches(journal: &[u8]) -> usize {
    let mut rest = journal;
    while let Some(behind) = batch(rest) {
        rest = behind;
    }
    journal.len() - rest.len()
}

/// What follows a whole batch.
fn batch(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    if take::<1>(&mut rest)? != [START] {
        return None;
    }
    let count = u32::from_le_bytes(take(&mut rest)?);
    let _seqno: [u8; 8] = take(&mut rest)?;
    let mut sum = Xxh3::new();
    for _ in 0..count {
        let entry = rest;
        rest = change(rest)?;
        sum.update(entry.get(..entry.len() - rest.len())?);
    }
    let is_end = take(&mut rest)? == [END];
    let is_same = u64::from_le_bytes(take(&mut rest)?) == sum.digest();
    (is_end && is_same && take(&mut rest)? == TRAILER).then_some(rest)
}

/// What follows one change of a batch.
fn change(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    match take(&mut rest)? {
        [ITEM] => {
            let _kind_and_compression: [u8; 2] = take(&mut rest)?;
            let _keyspace: [u8; 8] = take(&mut rest)?;
            let key = usize::from(u16::from_le_bytes(take(&mut rest)?));
            let _length_of_the_value: [u8; 4] = take(&mut rest)?;
            let value = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
            rest.get(key.checked_add(value)?..)
        }
        [CLEAR] => {
            let _keyspace: [u8; 8] = take(&mut rest)?;
            Some(rest)
        }
        _ => None,
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::disk::{Disk, With};
    use crate::journal::BatchRow;
    use crate::rows::RowName;

    /// Journals as the engine writes them.
    #[test]
    fn whole_batches_end_where_the_engine_ended_them() {
        let directory = tempfile::tempdir().unwrap();
        let engine = directory.path().join("records");
        let mut ends = Vec::new();
        for number in 1..=3 {
            let disk = Disk::open(&engine, 1 << 20).unwrap();
            let name = |n: u64| RowName::new("rooms", n.to_be_bytes()).unwrap();
            let value = vec![7; 5000 * usize::try_from(number).unwrap()];
            let rows = BTreeMap::from([(name(number), Some(value)), (name(9), None)]);
            let with = With { swept: vec![[1; 16]], expiring: vec![(5, vec![2; 64])], rows };
            disk.write(number, &BatchRow::default(), with).unwrap();
            drop(disk);
            let journal = std::fs::read(engine.join("0.jnl")).unwrap();
            ends.push(whole_batches(&journal));
            assert!(journal[ends[ends.len() - 1]..].iter().all(|byte| *byte == 0));
        }
        assert!(ends[0] > 0 && ends[0] < ends[1] && ends[1] < ends[2], "{ends:?}");
        // Whatever is wrong with the last one, those before it are whole.
        let journal = std::fs::read(engine.join("0.jnl")).unwrap();
        for at in ends[1]..ends[2] {
            let mut torn = journal.clone();
            torn[at] ^= 0x55;
            let whole = whole_batches(&torn);
            // The kinds of entries and the number of the batch have no checksum.
            assert!(whole == ends[1] || (at < ends[1] + 13 && whole == ends[2]), "{at}: {whole}");
            assert_eq!(whole_batches(&journal[..at]), ends[1], "cut at {at}");
        }
        TornEnd { name: "0.jnl".into(), bytes: ends[1] as u64 }.cut_off(&engine).unwrap();
        assert_eq!(TornEnd::find(&engine).unwrap(), None);
        let disk = Disk::open(&engine, 1 << 20).unwrap();
        assert_eq!(disk.log().count(), 2);
    }
}
