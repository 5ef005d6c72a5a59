//! The real rules with one of them broken on purpose: if the model does not notice, it proves
//! nothing. A mutant calls [`justonce_core::transition`] and tampers with what goes in or with
//! what comes out; it has no rules of its own.

mod claims;
mod points;
mod releases;
mod table;
mod time;
mod tools;
mod writes;

pub use table::{MUTANTS, Mutant};
