//! The worlds that are explored, and what must be seen to happen in each.

mod sights;
mod worlds;

pub(crate) use sights::Explored;
pub use sights::Sight;
pub(crate) use worlds::TICK;
pub use worlds::{Setup, SetupError};
