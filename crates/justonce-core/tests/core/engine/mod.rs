//! The engine on the memory store, in virtual time.

mod cancellation;
mod checkpoints;
mod duplicates;
mod edges;
mod inspect;
mod json;
mod limits;
mod lost_claim;
mod not_stored;
mod outcomes;
mod probe;
mod renewal;
mod runtimes;
mod steps;
mod store_trouble;
