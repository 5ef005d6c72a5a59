//! Tokens and keys as issuers make them, and as strangers forge them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: a failure here is a failed test"
)]

mod forged;
mod props;
mod rotation;
mod sources;
mod support;
