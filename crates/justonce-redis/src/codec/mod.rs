//! Records as bytes: a head that the scripts decide by, and parts that they only copy.
//! `lua/parts/head.lua` describes the layout, `lua/parts/record.lua` reads it.

mod decode;
mod encode;
mod frame;

pub(crate) use decode::{checkpoint as read_checkpoint, entry, stored, summary};
pub(crate) use encode::{NewClaim, TERMS_BYTES, checkpoint, completion, outcome};
pub(crate) use frame::SUMMARY_BYTES;
