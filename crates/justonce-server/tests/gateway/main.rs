//! The real gateway, as a process, between a client and a service that do what the test says.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: each test uses some of them, and a failure here is a failed test"
)]

mod admin;
mod answers;
mod breaker;
mod check;
mod client;
mod completer;
mod contract;
mod crash;
mod expire;
mod hostile_contents;
mod metrics;
mod process;
mod reload;
mod sagas;
mod shutdown;
mod stage;
mod stores;
mod unknown;
mod upstream;
