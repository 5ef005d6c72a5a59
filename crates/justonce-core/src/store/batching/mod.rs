//! Batching: concurrent steps share a command, for stores where a command costs more than a step.

mod queue;
#[cfg(test)]
mod tests;

pub use queue::{BatchExecutor, BatchLimits, BatchQueue, Pending, Replies, ReplyTo, may_batch};
