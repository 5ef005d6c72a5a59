//! The configuration: what its sources say, what comes out, and what its documents say about it.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a helper that cannot set the scene fails its test"
)]

mod docs;
mod fixtures;
mod identity;
mod schema;
mod upstreams;
mod values;
mod variables;
