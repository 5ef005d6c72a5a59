//! The HTTP contract, line by line: every test is named after the line that it proves.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "all of this is tests: a helper that fails, fails its test"
)]

mod oracles;
mod support;

mod caller_limits;
mod circuit_breaker;
mod claims;
mod concurrency;
mod cors;
mod disconnects;
mod docs;
mod errors;
mod execution;
mod extract;
mod fingerprint;
mod grpc;
mod grpc_effects;
mod grpc_streams;
mod identity;
mod key;
mod limits;
mod logs_and_metrics;
mod lookup;
mod marks;
mod paths;
mod properties;
mod replay;
mod reports;
mod routes;
mod store_failures;
mod storing;
mod streams;
mod wire;
