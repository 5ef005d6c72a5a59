//! What only the embedded store promises, and the rules, on real directories.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unreachable,
    reason = "all of this is a test, also the functions that are not marked as one"
)]

mod backup;
mod clock_floor;
mod closing;
mod conformance;
mod crash;
mod damage;
mod damaged_records;
mod erased;
mod foreign;
mod full_disk;
mod modes;
mod production;
mod rows;
mod store;
mod swept;
mod torn_journal;
mod waiting;
