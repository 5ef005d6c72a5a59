//! One batch in the log, as bytes.
//!
//! A frame around the payload: magic, number, length, checksum. In a file that was written before,
//! old batches follow the newest one; their numbers tell.

use justonce_core::{RecordId, StateName, Timestamp};
use xxhash_rust::xxh3::Xxh3;

use crate::rows::{RowName, RowWrite};
use crate::write::{DiskOp, DiskState, Write};

const MAGIC: [u8; 8] = *b"justwal1";
const FRAME_BYTES: usize = 32;
/// Stands for no time at all.
const NEVER: u64 = u64::MAX;

/// What was decided together, in the order of the decisions.
#[derive(Debug)]
pub(crate) struct WalBatch {
    pub(crate) number: u64,
    /// The store's time.
    pub(crate) now: Timestamp,
    /// No fence below this one may be given after a restart.
    pub(crate) fences_reserved: u64,
    pub(crate) writes: Vec<Write>,
}

/// The numbers of a batch that is about to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading {
    pub(crate) number: u64,
    pub(crate) now: Timestamp,
    pub(crate) fences_reserved: u64,
}

/// Puts a batch into a buffer, frame and all.
pub(crate) fn encode(heading: Heading, writes: &[Write], buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(&[0; FRAME_BYTES]);
    buffer.extend_from_slice(&heading.now.as_millis().to_le_bytes());
    buffer.extend_from_slice(&heading.fences_reserved.to_le_bytes());
    for write in writes {
        encode_write(write, buffer);
    }
    let Some((frame, payload)) = buffer.split_first_chunk_mut::<FRAME_BYTES>() else { return };
    let length = payload.len() as u64;
    let sum = checksum(heading.number, payload);
    let words = [u64::from_le_bytes(MAGIC), heading.number, length, sum];
    for (to, word) in frame.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}

fn checksum(number: u64, payload: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(payload);
    hasher.digest()
}

fn encode_write(write: &Write, buffer: &mut Vec<u8>) {
    let kind: u8 = match &write.op {
        None => 0,
        Some(DiskOp::Put(..)) => 1,
        Some(DiskOp::Remove) => 2,
        Some(DiskOp::Swept(_)) => 3,
    };
    buffer.push(kind);
    buffer.extend_from_slice(write.id.as_bytes());
    for on_disk in [write.replaces, write.adds] {
        let (tag, bytes) = home_to_bytes(on_disk);
        buffer.push(tag);
        buffer.extend_from_slice(&bytes.to_le_bytes());
    }
    let expires_at = write.expires_at.map_or(NEVER, Timestamp::as_millis);
    buffer.extend_from_slice(&expires_at.to_le_bytes());
    match &write.op {
        None | Some(DiskOp::Remove) => {}
        Some(DiskOp::Put(bytes)) => put_bytes(bytes, buffer),
        Some(DiskOp::Swept(row)) => buffer.extend_from_slice(row),
    }
    buffer.extend_from_slice(&(write.rows.len() as u64).to_le_bytes());
    for RowWrite { name, value } in &write.rows {
        put_bytes(name.as_bytes(), buffer);
        buffer.push(u8::from(value.is_some()));
        put_bytes(value.as_deref().unwrap_or_default(), buffer);
    }
}

fn put_bytes(bytes: &[u8], buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    buffer.extend_from_slice(bytes);
}

const fn home_to_bytes(on_disk: DiskState) -> (u8, u32) {
    match on_disk {
        DiskState::Absent => (0, 0),
        DiskState::Live => (1, 0),
        DiskState::Done(state, bytes) => (state_to_byte(state), bytes),
    }
}

const fn state_to_byte(state: StateName) -> u8 {
    match state {
        StateName::InProgress => 2,
        StateName::Completed => 3,
        StateName::Failed => 4,
        StateName::Unknown => 5,
        StateName::Tombstone => 6,
        StateName::Absent => 7,
        StateName::Released => 8,
    }
}

const fn home_from_bytes(tag: u8, bytes: u32) -> Option<DiskState> {
    let state = match tag {
        0 => return Some(DiskState::Absent),
        1 => return Some(DiskState::Live),
        2 => StateName::InProgress,
        3 => StateName::Completed,
        4 => StateName::Failed,
        5 => StateName::Unknown,
        6 => StateName::Tombstone,
        7 => StateName::Absent,
        8 => StateName::Released,
        _ => return None,
    };
    Some(DiskState::Done(state, bytes))
}

/// The batches of one pass over a file, from its start: their numbers follow each other. What does
/// not is from an earlier pass, or was cut off by a crash.
pub(crate) fn decode_run(mut bytes: &[u8]) -> Vec<WalBatch> {
    let mut run: Vec<WalBatch> = Vec::new();
    while let Some((batch, rest)) = decode(bytes) {
        if run.last().is_some_and(|last| batch.number != last.number + 1) {
            break;
        }
        run.push(batch);
        bytes = rest;
    }
    run
}

/// The batch at the start, if there is a whole one.
fn decode(bytes: &[u8]) -> Option<(WalBatch, &[u8])> {
    let (frame, rest) = bytes.split_first_chunk::<FRAME_BYTES>()?;
    let words: &[[u8; 8]; 4] = frame.as_chunks::<8>().0.try_into().ok()?;
    let [magic, number, length, sum] = words.map(u64::from_le_bytes);
    if magic != u64::from_le_bytes(MAGIC) {
        return None;
    }
    let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    if checksum(number, payload) != sum {
        return None;
    }
    let mut reader = Reader(payload);
    let now = Timestamp::from_millis(reader.word()?);
    let fences_reserved = reader.word()?;
    let mut writes = Vec::new();
    while !reader.0.is_empty() {
        writes.push(reader.write()?);
    }
    Some((WalBatch { number, now, fences_reserved, writes }, rest))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn word(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.word()?).ok()?;
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn on_disk(&mut self) -> Option<DiskState> {
        let [tag] = self.array()?;
        home_from_bytes(tag, u32::from_le_bytes(self.array()?))
    }

    fn write(&mut self) -> Option<Write> {
        let [kind] = self.array()?;
        let id = RecordId::from_bytes(self.array()?);
        let (replaces, adds) = (self.on_disk()?, self.on_disk()?);
        let expires_at = Some(self.word()?).filter(|time| *time != NEVER);
        let expires_at = expires_at.map(Timestamp::from_millis);
        let op = match kind {
            0 => None,
            1 => Some(DiskOp::Put(self.bytes()?.to_vec())),
            2 => Some(DiskOp::Remove),
            3 => Some(DiskOp::Swept(self.array()?)),
            _ => return None,
        };
        let count = self.word()?;
        let rows = (0..count).map(|_| self.row()).collect::<Option<_>>()?;
        // It is read from the log: no caller waits for it.
        Some(Write { id, op, replaces, adds, expires_at, rows, ..Write::empty() })
    }

    fn row(&mut self) -> Option<RowWrite> {
        let name = RowName::from_bytes(self.bytes()?);
        let [there] = self.array()?;
        let value = self.bytes()?.to_vec();
        Some(RowWrite { name, value: (there == 1).then_some(value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes() -> Vec<Write> {
        let id = |n| RecordId::from_bytes([n; 32]);
        let done = DiskState::Done(StateName::Completed, 77);
        let row = |value| RowWrite { name: RowName::new("rooms", "7").unwrap(), value };
        vec![
            Write { id: id(1), op: Some(DiskOp::Put(vec![1, 2, 3])), ..Write::empty() },
            Write {
                id: id(2),
                op: Some(DiskOp::Remove),
                replaces: done,
                adds: DiskState::Live,
                expires_at: Some(Timestamp::from_millis(5)),
                ..Write::empty()
            },
            Write::swept([9; 16]),
            Write { rows: vec![row(Some(vec![4])), row(None)], ..Write::empty() },
        ]
    }

    fn encoded(number: u64) -> Vec<u8> {
        let now = Timestamp::from_millis(7);
        let mut buffer = Vec::new();
        encode(Heading { number, now, fences_reserved: 8 }, &writes(), &mut buffer);
        buffer
    }

    fn numbers(bytes: &[u8]) -> Vec<u64> {
        decode_run(bytes).iter().map(|batch| batch.number).collect()
    }

    #[test]
    fn a_batch_reads_back() {
        let run = decode_run(&encoded(3));
        let [batch] = run.as_slice() else { panic!("there is one batch") };
        assert_eq!((batch.number, batch.now.as_millis(), batch.fences_reserved), (3, 7, 8));
        assert_eq!(format!("{:?}", batch.writes), format!("{:?}", writes()));
    }

    #[test]
    fn a_run_ends_where_an_older_pass_begins() {
        let bytes = [encoded(7), encoded(8), encoded(3), encoded(4)].concat();
        assert_eq!(numbers(&bytes), [7, 8]);
    }

    #[test]
    fn a_cut_or_damaged_batch_is_not_believed() {
        let bytes = [encoded(7), encoded(8)].concat();
        let whole = encoded(7).len();
        for cut in 0..bytes.len() {
            let expected: &[u64] = if cut < whole { &[] } else { &[7] };
            assert_eq!(numbers(&bytes[..cut]), expected, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            let expected: &[u64] = if at < whole { &[] } else { &[7] };
            assert_eq!(numbers(&damaged), expected, "damaged at {at}");
        }
    }
}
