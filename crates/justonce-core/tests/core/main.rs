//! The protocol in virtual time: the rules, the engine, and the layers around a store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is a test, also the functions that are not marked as one"
)]

mod cached;
mod codec_fixtures;
mod common;
mod draw;
mod engine;
mod props;
mod state_machine_doc;
mod store_decorators;
mod worker;
