//! Batching: concurrent steps share a command, for stores where a command costs more than a step.

mod notify;
mod queue;
#[cfg(test)]
mod tests;
mod watchdog;

pub use queue::{BatchExecutor, BatchLimits, BatchQueue, Pending, Replies, ReplyTo, may_batch};
