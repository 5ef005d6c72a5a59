//! Every file of a store is damaged in turn.

pub(crate) mod directory;
mod every_file;
pub(crate) mod filled;
