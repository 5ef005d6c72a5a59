//! The caller's writes and the outcome in one transaction, while everything that can die dies at
//! every point. The ledger is the witness: one row for each transfer, always.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unreachable,
    reason = "all of this is a test, also the functions that are not marked as one"
)]

mod bank;
#[cfg(feature = "sqlx")]
mod by_sqlx;
mod commit;
mod handler;
mod killed;
mod proxy;
