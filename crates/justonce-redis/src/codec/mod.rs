//! Records as they lie in Redis: a head with all that the scripts decide by, and parts that they
//! pass on as they are. `lua/record.lua` describes and reads the same bytes.

mod decode;
mod encode;
mod frame;

pub(crate) use decode::{checkpoint as point, entry, entry_of, stored};
pub(crate) use encode::{Claiming, TERMS_BYTES, checkpoint, completion, outcome};
pub(crate) use frame::SUMMARY_BYTES;
