//! The PostgreSQL store on real servers: the rules, statements, migrations, damage, faults, and the
//! caller's own writes.

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
mod conformance;
mod connections;
mod cost;
mod damage;
mod faults;
mod growth;
mod locked;
mod migrations;
mod plans;
mod production;
mod runtimes;
mod stage;
mod sweeping;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod transactional;
mod waiting;
