//! Operations of which nobody knows whether they took effect, and the doors by which that is
//! resolved.

mod admin;
mod callback;
mod cause;
mod cli;
mod counted;
mod probe;
mod races;
mod released;
pub(crate) mod stage;
