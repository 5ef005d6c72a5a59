//! Many gateways on one store, and everything that can happen to that store: real servers are
//! killed, paused, replaced and cut off under load. A ledger counts every effect, clients ask until
//! they know, and at the end a checker reads every request, effect and reply.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: each test uses some of them, and a failure here is a failed test"
)]

mod client;
mod clocks;
mod connections;
mod failover;
mod fenced;
mod identical;
mod killed;
mod ledger;
mod load;
mod paused;
#[path = "../gateway/process.rs"]
mod process;
mod stage;
mod store;
