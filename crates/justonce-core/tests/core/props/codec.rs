//! Records survive the trip through bytes, and no damage goes unnoticed.

use justonce_core::codec::{COMPRESS_FROM_BYTES, FORMAT_VERSION, decode, encode};
use justonce_core::store::Stored;
use justonce_core::{Damage, Entry, Fence, RecordId, Timeline, Timestamp, Tombstone};
use proptest::prelude::*;

use crate::draw::settings::cases;
use crate::draw::stored::{id, stored};

/// Where the payload begins, as the format's description says.
const HEADER_BYTES: usize = 11;

/// A frame's plain payload, and whether it was compressed.
fn payload(frame: &[u8]) -> (Vec<u8>, bool) {
    match frame[2] {
        0 => (frame[HEADER_BYTES..].to_vec(), false),
        1 => {
            let (length, block) = frame[HEADER_BYTES..].split_at(4);
            let length = u32::from_le_bytes(length.try_into().unwrap());
            let plain = lz4_flex::block::decompress(block, length as usize).unwrap();
            (plain, true)
        }
        flags => panic!("unknown flags {flags}"),
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_record_reads_back_as_it_was_written(id in id(), stored in stored()) {
        let frame = encode(&id, &stored);
        prop_assert_eq!(decode(&id, &frame), Ok(stored.clone()));
        prop_assert_eq!(encode(&id, &stored), frame, "equal records are equal bytes");
    }

    #[test]
    fn a_changed_byte_is_noticed(
        id in id(),
        stored in stored(),
        at in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
    ) {
        let mut frame = encode(&id, &stored);
        let at = at.index(frame.len());
        frame[at] ^= flip;
        let version = frame[1];
        let damaged = decode(&id, &frame).unwrap_err();
        prop_assert_eq!(damaged.id, id);
        let expected = match at {
            0 => Damage::Foreign,
            1 if version == 0 || version > FORMAT_VERSION => Damage::Version(version),
            _ => Damage::Checksum,
        };
        prop_assert_eq!(damaged.damage, expected);
    }

    #[test]
    fn a_missing_end_is_noticed(
        id in id(),
        stored in stored(),
        keep in any::<prop::sample::Index>(),
    ) {
        let frame = encode(&id, &stored);
        let keep = keep.index(frame.len());
        let damaged = decode(&id, &frame[..keep]).unwrap_err();
        let expected = if keep < HEADER_BYTES { Damage::Truncated } else { Damage::Checksum };
        prop_assert_eq!((damaged.id, damaged.damage), (id, expected));
    }

    #[test]
    fn a_surplus_at_the_end_is_noticed(id in id(), stored in stored(), surplus: Vec<u8>) {
        prop_assume!(!surplus.is_empty());
        let mut frame = encode(&id, &stored);
        frame.extend(surplus);
        prop_assert_eq!(decode(&id, &frame).unwrap_err().damage, Damage::Checksum);
    }

    #[test]
    fn a_record_under_another_name_is_noticed(id in id(), other in id(), stored in stored()) {
        prop_assume!(id != other);
        let damaged = decode(&other, &encode(&id, &stored)).unwrap_err();
        prop_assert_eq!((damaged.id, damaged.damage), (other, Damage::Checksum));
        prop_assert!(damaged.to_string().contains(&other.to_string()));
    }

    #[test]
    fn foreign_bytes_are_an_error_and_no_panic(id in id(), bytes: Vec<u8>) {
        prop_assert!(decode(&id, &bytes).is_err());
    }

    #[test]
    fn foreign_payloads_in_a_good_frame_are_an_error_and_no_panic(
        id in id(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        compressed: bool,
    ) {
        let frame = framed(&id, u8::from(compressed), &bytes);
        if let Ok(stored) = decode(&id, &frame) {
            // What happens to be a record must at least be one that can be written.
            prop_assert_eq!(decode(&id, &encode(&id, &stored)), Ok(stored));
        }
    }

    #[test]
    fn only_large_payloads_are_compressed_and_only_if_they_shrink(id in id(), stored in stored()) {
        let frame = encode(&id, &stored);
        let (plain, compressed) = payload(&frame);
        let shrinks = lz4_flex::block::compress(&plain).len() + 4 < plain.len();
        prop_assert_eq!(compressed, plain.len() >= COMPRESS_FROM_BYTES && shrinks);
        prop_assert!(frame.len() <= HEADER_BYTES + plain.len());
    }
}

/// A frame whose checksum is right, around any payload.
fn framed(id: &RecordId, flags: u8, payload: &[u8]) -> Vec<u8> {
    let head = [b'J', FORMAT_VERSION, flags];
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.update(id.as_bytes());
    hasher.update(&head);
    hasher.update(payload);
    let sum = hasher.digest().to_le_bytes();
    [&head[..], &sum, payload].concat()
}

fn small() -> (RecordId, Stored) {
    let tombstone = Tombstone {
        fence: Fence::new(7),
        since: Timestamp::from_millis(1_700_000_000_000),
        until: Timestamp::from_millis(1_800_000_000_000),
    };
    let stored = Stored { entry: Entry::Tombstone(tombstone), timeline: Timeline::default() };
    (RecordId::from_bytes([5; 32]), stored)
}

#[test]
fn every_change_of_every_byte_of_a_small_record_is_noticed() {
    let (id, stored) = small();
    let frame = encode(&id, &stored);
    for at in 0..frame.len() {
        for flip in 1..=u8::MAX {
            let mut damaged = frame.clone();
            damaged[at] ^= flip;
            assert!(decode(&id, &damaged).is_err(), "byte {at} ^ {flip}");
        }
        assert!(decode(&id, &frame[..at]).is_err(), "cut at {at}");
    }
    assert_eq!(decode(&id, &frame), Ok(stored));
}

#[test]
fn flags_and_lengths_from_the_future_are_named() {
    let (id, stored) = small();
    let (payload, _) = payload(&encode(&id, &stored));
    let damage = |frame: &[u8]| decode(&id, frame).unwrap_err().damage;
    assert_eq!(decode(&id, &framed(&id, 0, &payload)), Ok(stored));
    assert_eq!(damage(&framed(&id, 2, &payload)), Damage::Flags(2));
    assert_eq!(damage(&framed(&id, 1, &[1, 0])), Damage::Truncated);
    let huge = [&u32::MAX.to_le_bytes()[..], &payload].concat();
    assert_eq!(damage(&framed(&id, 1, &huge)), Damage::Compression);
    let surplus = [&payload[..], &[0]].concat();
    assert_eq!(damage(&framed(&id, 0, &surplus)), Damage::Content);
}
