//! The conformance suite passes on the memory store.

mod memory;
mod production;
mod ticking;
