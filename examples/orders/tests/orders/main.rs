//! The real processes: three services with ledgers, and order services that are killed with SIGKILL
//! at every boundary of every step. Afterwards the ledgers are compared with each other, and with
//! what the clients heard.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: a failure here is a failed test"
)]

mod by_phases;
mod by_saga;
mod checker;
mod client;
mod crash;
mod duplicates;
mod process;
mod shop;
