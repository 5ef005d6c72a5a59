//! The real gateway, as a process, and the command line.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: each test uses some of them, and a failure here is a failed test"
)]

mod clients;
mod cuts;
mod demo;
mod faults;
mod gateway;
mod hardening;
mod servers;
mod support;
