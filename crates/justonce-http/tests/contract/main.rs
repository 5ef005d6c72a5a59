//! The HTTP contract, line by line: every test is named after the line that it proves.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "all of this is tests: a helper that cannot set the scene fails its test"
)]

mod support;

mod concurrency;
mod docs;
mod errors;
mod execution;
mod extract;
mod fingerprint;
mod gate;
mod identity;
mod key;
mod leaving;
mod limits;
mod lookup;
mod marks;
mod paths;
mod replay;
mod routes;
mod seen;
mod storing;
mod streams;
mod trouble;
mod wire;
