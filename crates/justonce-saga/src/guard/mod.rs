//! What is kept of the last write: late arrivals are refused, and what has not changed is not done
//! again.

mod changed;
mod error;
mod last_write;
mod newest;
mod write;

pub use changed::{Conditional, IfChanged};
pub use error::GuardError;
pub use newest::{Guard, Written};
