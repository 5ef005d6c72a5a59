//! Records as bytes: versioned, checksummed, compressed when that helps.
//!
//! A damaged or foreign record is a typed error that names it, never a panic.

mod frame;
mod parts;
mod read;
mod wire;
mod write;

pub use crate::scope::unescape;
pub use frame::{COMPRESS_FROM_BYTES, FORMAT_VERSION, MAX_RECORD_BYTES, decode, encode};
pub use parts::{
    append_outcome, decode_outcome, encode_outcome, note_kind, note_words, outcome_size,
};
