//! Rows of the caller's own: written in one batch with a recovery point or an outcome.

mod name;
mod pending;
mod with;
mod writes;

pub use name::{RowName, RowNameError};
pub(crate) use pending::PendingRows;
pub(crate) use writes::RowWrite;
pub use writes::RowWrites;
