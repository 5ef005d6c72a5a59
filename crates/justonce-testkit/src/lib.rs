//! Testkit.

pub mod model;
