//! The auditor: it knows what `docs/guarantees.md` promises and what callers, handlers and
//! operators saw, and nothing of what lies between them.
//!
//! Every rule is a function of a history. It says what may not be seen in it.

mod answers;
mod check;
mod ends;
mod executions;
mod owners;
#[cfg(test)]
mod tests;
mod times;
mod view;

pub(crate) use check::violation;
pub use view::Violation;
