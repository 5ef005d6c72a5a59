//! What the tests of the two sides share: upstreams that do exactly what they are told, a
//! gateway without rules, and clients that speak in bytes.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: each test uses some of them, and a failure here is a failed test"
)]

mod bytes;
mod gateway;
mod upstream;

pub use bytes::{Fed, content_length, read_answer, read_head, read_rest, say, settle, shout};
pub use gateway::{Gateway, listener};
pub use upstream::{Dead, OK, Upstream, answer_all, proxy, settings, url};
