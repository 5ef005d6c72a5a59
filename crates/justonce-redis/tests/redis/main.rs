//! The Redis store on real servers: the rules, and what happens when servers fail.

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
mod on_cluster;
mod outages;
mod outcomes;
mod production;
mod replicas;
mod runtimes;
mod sentinel;
mod tiered;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod waiting;
mod world;
