//! Hostile clients: whatever they send, or do not send, the gateway answers clearly or closes the
//! connection, stays small, and serves everybody else.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: each test uses some of them, and a failure here is a failed test"
)]

mod attacked;
#[path = "../gateway/client.rs"]
mod client;
mod crowd;
mod http2;
mod injection;
mod malformed;
mod memory;
#[path = "../gateway/process.rs"]
mod process;
mod slow;
mod smuggling;
mod taped;
#[path = "../gateway/upstream.rs"]
mod upstream;
