//! Phases, sagas and the completer on every store, while everything that can go wrong does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unreachable,
    reason = "all of this is a test, also the functions that are not marked as one"
)]

mod commits;
mod completer_limits;
mod completing;
mod faults;
mod ground;
mod guard;
mod inspect;
mod model;
mod orders;
mod phases;
mod phases_model;
mod poison;
mod reconcile;
mod reconcile_props;
mod reconcile_stage;
mod rehearsed;
mod rows;
mod steps;
mod stuck;
mod within;
