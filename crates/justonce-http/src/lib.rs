//! Idempotency for HTTP services.

mod pattern;
mod verdict;

pub use pattern::{Pattern, PatternError};
pub use verdict::Verdict;
