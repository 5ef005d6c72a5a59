//! The caller's writes and the outcome in one transaction, while everything that can die dies at
//! every point. The ledger is the witness: one row for each transfer, always.

mod bank;
#[cfg(feature = "sqlx")]
mod by_sqlx;
mod commit;
mod handler;
mod killed;
mod proxy;
