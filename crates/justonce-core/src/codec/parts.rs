//! Parts of a record as bytes and words, for stores that keep a record in several fields so that
//! the rules can be repeated in their own language.
//!
//! An outcome is one opaque field: equal outcomes have equal bytes, so a store may compare them.
//! A note is a moment, a fence, the name of its kind and a few words.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::frame::{COMPRESS_FROM_BYTES, FORMAT_VERSION_1, MAX_RECORD_BYTES};
use super::{read, write};
use crate::claim::Owner;
use crate::error::Damage;
use crate::outcome::Outcome;
use crate::protocol::{HowResolved, NoteKind, RefusedStep, Resolver, UnknownReason, Why};

const HEADER_BYTES: usize = 10;
const FLAG_LZ4: u8 = 1;

/// The bytes of an outcome: version, flags, checksum (XXH3, little endian), payload.
#[must_use]
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    append_outcome(outcome, Vec::new())
}

/// The bytes of an outcome, as [`encode_outcome`] gives them, behind others.
#[must_use]
pub fn append_outcome(outcome: &Outcome, mut bytes: Vec<u8>) -> Vec<u8> {
    let head_at = bytes.len();
    bytes.reserve_exact(outcome_size(outcome));
    bytes.extend_from_slice(&[FORMAT_VERSION_1; HEADER_BYTES]);
    let mut bytes = write::outcome(outcome, bytes);
    let mut flags = 0;
    if payload(&bytes, head_at).len() >= COMPRESS_FROM_BYTES {
        let smaller = lz4_flex::block::compress_prepend_size(payload(&bytes, head_at));
        if smaller.len() < payload(&bytes, head_at).len() {
            flags = FLAG_LZ4;
            bytes.truncate(head_at + HEADER_BYTES);
            bytes.extend_from_slice(&smaller);
        }
    }
    let sum = xxh3_64(payload(&bytes, head_at)).to_le_bytes();
    if let Some([_version, flags_at, sum_at @ ..]) = bytes.get_mut(head_at..head_at + HEADER_BYTES)
    {
        *flags_at = flags;
        sum_at.copy_from_slice(&sum);
    }
    bytes
}

/// About how many bytes [`encode_outcome`] gives; never fewer than there are.
#[must_use]
pub fn outcome_size(outcome: &Outcome) -> usize {
    HEADER_BYTES + write::outcome_size(outcome)
}

fn payload(bytes: &[u8], head_at: usize) -> &[u8] {
    bytes.get(head_at + HEADER_BYTES..).unwrap_or_default()
}

/// Reads an outcome back.
///
/// # Errors
///
/// If the bytes are not an outcome in a format this release knows.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, Damage> {
    let (header, payload) = bytes.split_at_checked(HEADER_BYTES).ok_or(Damage::Truncated)?;
    let [version, flags, sum @ ..] = header else {
        return Err(Damage::Truncated);
    };
    if *version != FORMAT_VERSION_1 {
        return Err(Damage::Version(*version));
    }
    let sum = <[u8; 8]>::try_from(sum).map_err(|_| Damage::Truncated)?;
    if u64::from_le_bytes(sum) != xxh3_64(payload) {
        return Err(Damage::Checksum);
    }
    match *flags {
        0 => read::outcome(payload),
        FLAG_LZ4 => read::outcome(&decompressed(payload)?),
        other => Err(Damage::Flags(other)),
    }
}

fn decompressed(payload: &[u8]) -> Result<Vec<u8>, Damage> {
    let (length, block) =
        lz4_flex::block::uncompressed_size(payload).map_err(|_| Damage::Compression)?;
    if length > MAX_RECORD_BYTES {
        return Err(Damage::Compression);
    }
    lz4_flex::block::decompress(block, length).map_err(|_| Damage::Compression)
}

/// The name of a note's kind and the words that belong to it, at most four.
#[must_use]
pub fn note_words(kind: &NoteKind) -> (&'static str, Vec<&str>) {
    match kind {
        NoteKind::Claimed(owner) => ("claimed", vec![owner.as_str()]),
        NoteKind::TakenOver(owner) => ("taken_over", vec![owner.as_str()]),
        NoteKind::Checkpointed(name) => ("checkpointed", vec![name]),
        NoteKind::Completed => ("completed", vec![]),
        NoteKind::FailedForNow => ("failed_for_now", vec![]),
        NoteKind::FailedForGood => ("failed_for_good", vec![]),
        NoteKind::GivenUp(reason) => ("given_up", vec![reason.as_str()]),
        NoteKind::GivenUpBecause(reason, why) => ("given_up", vec![reason.as_str(), why.as_str()]),
        NoteKind::Held(reason) => ("held", vec![reason.as_str()]),
        NoteKind::HeldBecause(reason, why) => ("held", vec![reason.as_str(), why.as_str()]),
        NoteKind::Refused(step) => ("refused", vec![step.as_str()]),
        NoteKind::Released => ("released", vec![]),
        NoteKind::Resolved(by, how, why) => {
            let (who, name) = match by {
                Resolver::Probe(name) => ("probe", name),
                Resolver::Callback(name) => ("callback", name),
                Resolver::Operator(name) => ("operator", name),
            };
            ("resolved", vec![who, name, how.as_str(), why.as_str()])
        }
    }
}

/// Reads the kind of a note back; nothing if it is none that this release knows.
#[must_use]
pub fn note_kind(name: &str, words: &[&str]) -> Option<NoteKind> {
    Some(match (name, words) {
        ("claimed", [owner]) => NoteKind::Claimed(Owner::new(owner)),
        ("taken_over", [owner]) => NoteKind::TakenOver(Owner::new(owner)),
        ("checkpointed", [name]) => NoteKind::Checkpointed(Arc::from(*name)),
        ("completed", []) => NoteKind::Completed,
        ("failed_for_now", []) => NoteKind::FailedForNow,
        ("failed_for_good", []) => NoteKind::FailedForGood,
        ("given_up", [reason]) => NoteKind::GivenUp(UnknownReason::parse(reason)?),
        ("given_up", [reason, why]) => {
            NoteKind::GivenUpBecause(UnknownReason::parse(reason)?, Why::new(why))
        }
        ("held", [reason]) => NoteKind::Held(UnknownReason::parse(reason)?),
        ("held", [reason, why]) => {
            NoteKind::HeldBecause(UnknownReason::parse(reason)?, Why::new(why))
        }
        ("refused", [step]) => NoteKind::Refused(RefusedStep::parse(step)?),
        ("released", []) => NoteKind::Released,
        ("resolved", [who, name, how, why]) => {
            let by = match *who {
                "probe" => Resolver::probe(name),
                "callback" => Resolver::callback(name),
                "operator" => Resolver::operator(name),
                _ => return None,
            };
            NoteKind::Resolved(by, HowResolved::parse(how)?, Why::new(why))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(body: &[u8]) -> Outcome {
        let builder = Outcome::builder().status(201).header("location", "/charges/17");
        builder.body(body.to_vec()).build().unwrap()
    }

    #[test]
    fn outcomes_read_back_whatever_their_size() {
        for size in [0, 1, 1_000, 100_000] {
            let kept = outcome(&vec![7; size]);
            let bytes = encode_outcome(&kept);
            assert_eq!(decode_outcome(&bytes), Ok(kept.clone()), "{size}");
            assert_eq!(bytes, encode_outcome(&kept), "equal outcomes have equal bytes");
            assert!(size < 100_000 || bytes.len() < 1_000, "{size}: {} bytes", bytes.len());
        }
    }

    #[test]
    fn an_outcome_behind_other_bytes_is_the_same() {
        for size in [0, 1, 100, COMPRESS_FROM_BYTES, 100_000] {
            let outcome = outcome(&vec![b'x'; size]);
            let bytes = append_outcome(&outcome, b"before".to_vec());
            assert!(encode_outcome(&outcome).len() <= outcome_size(&outcome));
            assert_eq!(bytes.strip_prefix(b"before"), Some(&*encode_outcome(&outcome)));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = encode_outcome(&outcome(b"charged 5"));
        for at in 0..bytes.len() {
            assert!(decode_outcome(&bytes[..at]).is_err(), "cut at {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert!(decode_outcome(&flipped).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn every_kind_of_note_reads_back() {
        let owner = Owner::new("gateway-1");
        let why = || Why::new("the bank says so");
        let mut kinds = vec![
            NoteKind::Claimed(owner.clone()),
            NoteKind::TakenOver(owner),
            NoteKind::Checkpointed(Arc::from("charged")),
            NoteKind::Completed,
            NoteKind::FailedForNow,
            NoteKind::FailedForGood,
            NoteKind::Released,
            NoteKind::Resolved(Resolver::probe("bank"), HowResolved::Completed, why()),
            NoteKind::Resolved(Resolver::callback("bank"), HowResolved::Failed, why()),
            NoteKind::Resolved(Resolver::operator("ann"), HowResolved::Released, why()),
        ];
        kinds.extend(UnknownReason::ALL.map(NoteKind::Held));
        kinds.extend(UnknownReason::ALL.map(NoteKind::GivenUp));
        kinds.extend(UnknownReason::ALL.map(|reason| NoteKind::HeldBecause(reason, why())));
        kinds.extend(UnknownReason::ALL.map(|reason| NoteKind::GivenUpBecause(reason, why())));
        kinds.extend(RefusedStep::ALL.map(NoteKind::Refused));
        for kind in kinds {
            let (name, words) = note_words(&kind);
            assert_eq!(note_kind(name, &words), Some(kind.clone()), "{kind:?}");
        }
        assert_eq!(note_kind("completed", &["surplus"]), None);
        assert_eq!(note_kind("held", &["for ransom"]), None);
    }
}
