//! What is PostgreSQL's own: statements, durability, migrations, damage, waiters, faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unreachable,
    reason = "all of this is a test, also the functions that are not marked as one"
)]

mod bouncer;
mod cancelled;
mod connections;
mod cost;
mod damage;
mod faults;
mod growth;
mod locked;
mod migrations;
mod plans;
mod runtimes;
mod stage;
mod sweeping;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod waiting;
