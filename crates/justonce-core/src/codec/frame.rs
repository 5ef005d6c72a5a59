//! The frame around an encoded record.
//!
//! ```text
//! byte  0      b'J'
//!       1      format version
//!       2      flags: bit 0 = the payload is compressed with LZ4
//!       3..11  checksum (XXH3, little endian) of the record's name, version, flags and payload
//!       11..   payload; if compressed, its plain length (u32, little endian) and one LZ4 block
//! ```
//!
//! The checksum covers the record's name, so that a record found under another name is noticed.

use xxhash_rust::xxh3::Xxh3;

use super::{read, write};
use crate::error::{Damage, DamagedRecord};
use crate::protocol::Stored;
use crate::record_id::RecordId;

/// The newest format version. A record is written in the oldest that can say it.
pub const FORMAT_VERSION: u8 = 2;
/// The version without the causes in notes.
pub(super) const FORMAT_VERSION_1: u8 = 1;
/// Payloads below this many bytes are not worth compressing.
pub const COMPRESS_FROM_BYTES: usize = 1024;
/// No encoded record is larger than this: a length beyond it is damage, not a record.
pub const MAX_RECORD_BYTES: usize = 8 * 1024 * 1024;

const MAGIC: u8 = b'J';
const HEADER_BYTES: usize = 11;
const FLAG_LZ4: u8 = 1;

/// The bytes of a record.
#[must_use]
pub fn encode(id: &RecordId, stored: &Stored) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + write::size_hint(stored));
    frame.extend_from_slice(&[MAGIC, write::version(stored), 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut frame = write::write(stored, frame);
    if frame.len() >= HEADER_BYTES + COMPRESS_FROM_BYTES
        && let Some(smaller) = compressed(&frame)
    {
        frame = smaller;
    }
    let sum = checksum(id, &frame).to_le_bytes();
    for (to, from) in frame.iter_mut().skip(3).zip(sum) {
        *to = from;
    }
    frame
}

/// The same frame with its payload compressed, if that makes it smaller.
fn compressed(plain: &[u8]) -> Option<Vec<u8>> {
    let payload = plain.get(HEADER_BYTES..)?;
    let length = u32::try_from(payload.len()).ok()?;
    let block = lz4_flex::block::compress(payload);
    if block.len() + 4 >= payload.len() {
        return None;
    }
    let mut frame = Vec::with_capacity(HEADER_BYTES + 4 + block.len());
    frame.extend_from_slice(plain.get(..HEADER_BYTES)?);
    if let Some(flags) = frame.get_mut(2) {
        *flags |= FLAG_LZ4;
    }
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&block);
    Some(frame)
}

/// Everything but the checksum's own place.
fn checksum(id: &RecordId, frame: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(id.as_bytes());
    hasher.update(frame.get(..3).unwrap_or_default());
    hasher.update(frame.get(HEADER_BYTES..).unwrap_or_default());
    hasher.digest()
}

/// Reads a record back.
///
/// # Errors
///
/// If the bytes are not a record of this name in a format this release knows.
pub fn decode(id: &RecordId, frame: &[u8]) -> Result<Stored, DamagedRecord> {
    unframe(id, frame).map_err(|damage| DamagedRecord { id: *id, damage })
}

fn unframe(id: &RecordId, frame: &[u8]) -> Result<Stored, Damage> {
    let (header, payload) = frame.split_at_checked(HEADER_BYTES).ok_or(Damage::Truncated)?;
    let [magic, version, flags, sum @ ..] = header else {
        return Err(Damage::Truncated);
    };
    if *magic != MAGIC {
        return Err(Damage::Foreign);
    }
    // The version comes first: another version may have its checksum elsewhere.
    if !(FORMAT_VERSION_1..=FORMAT_VERSION).contains(version) {
        return Err(Damage::Version(*version));
    }
    let sum = <[u8; 8]>::try_from(sum).map_err(|_| Damage::Truncated)?;
    if u64::from_le_bytes(sum) != checksum(id, frame) {
        return Err(Damage::Checksum);
    }
    let stored = match *flags {
        0 => read::read(payload),
        FLAG_LZ4 => read::read(&decompressed(payload)?),
        other => Err(Damage::Flags(other)),
    }?;
    // A version says no more than it can.
    if write::version(&stored) > *version { Err(Damage::Content) } else { Ok(stored) }
}

fn decompressed(payload: &[u8]) -> Result<Vec<u8>, Damage> {
    let (length, block) = payload.split_first_chunk::<4>().ok_or(Damage::Truncated)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Damage::Compression)?;
    if length > MAX_RECORD_BYTES {
        return Err(Damage::Compression);
    }
    lz4_flex::block::decompress(block, length).map_err(|_| Damage::Compression)
}
