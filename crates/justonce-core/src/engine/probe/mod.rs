//! Unknown operations, resolved by asking the downstream.
//!
//! A [`Probe`] is an async function that knows how to ask. The engine finds what is unknown, asks
//! about it within limits, and resolves it by the answer. Many engines may do so on one store: to
//! ask twice is harmless, and the fence lets only the first word count.

mod ask;
mod pace;
mod prober;
mod report;
mod settings;

pub use ask::{Probe, Probed, Unresolved};
pub use prober::Prober;
pub use report::{ProbeEnd, ProbeReport};
pub use settings::ProberSettings;
