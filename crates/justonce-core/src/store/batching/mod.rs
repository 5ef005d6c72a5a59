//! Batching: concurrent steps share a command, for stores where a command costs more than a step.

mod batch_queue;
mod notify;
mod queue;
#[cfg(test)]
mod tests;
mod watchdog;

pub use batch_queue::BatchQueue;
pub use queue::{BatchExecutor, BatchLimits, Pending, Replies, ReplyTo, may_batch};
