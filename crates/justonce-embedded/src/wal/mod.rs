//! The write-ahead log: what is acknowledged is on disk here first.
//!
//! A few files of a fixed size that are written again and again: a sync of blocks that exist
//! already is much cheaper than one of a file that grows. A file may be written again once all it
//! holds is durable in the storage engine too.

mod apply_queue;
mod batch;
mod segments;

pub(crate) use apply_queue::ApplyQueue;
pub(crate) use batch::{Heading, WalBatch};
pub(crate) use segments::{Gap, Wal, bytes, last, read};
