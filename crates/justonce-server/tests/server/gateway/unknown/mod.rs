//! Unknown operations, and every way of resolving them.

mod admin;
mod callback;
mod cause;
mod cli;
mod counted;
mod probe;
mod races;
mod released;
pub(crate) mod stage;
