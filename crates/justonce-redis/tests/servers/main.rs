//! What the Redis store does on real servers, in good days and in bad ones.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is a test, also the functions that are not marked as one"
)]

mod cluster;
mod commands;
mod conformance;
mod contents;
mod eviction;
mod growth;
mod outages;
mod replicas;
mod runtimes;
mod sentinel;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod waiting;
mod world;
