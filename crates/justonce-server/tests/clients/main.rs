//! The gateway with clients that we did not write: curl, and the SDK of Stripe with its retries.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: each test uses some of them, and a failure here is a failed test"
)]

#[path = "../gateway/client.rs"]
mod client;
mod curl;
#[path = "../gateway/process.rs"]
mod process;
mod relay;
mod stripe;
mod tls;
#[path = "../gateway/upstream.rs"]
mod upstream;
