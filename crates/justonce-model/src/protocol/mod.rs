//! The protocol as a model: what can happen next, what each move does, and the auditor who checks
//! every step.

mod audit;
mod book;
mod end;
mod model;
mod moves;

pub use model::{Protocol, Rules};
pub use moves::{Move, Reply};
