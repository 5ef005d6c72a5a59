//! Tools that prove a store and its rules right.
//!
//! [`conformance`](mod@conformance) is one suite for all backends: it drives every case of the
//! protocol through a store and compares it with the pure function. Ten lines run it.
//!
//! [`model`] checks the rules themselves: every interleaving of a few workers, crashes, lapsed
//! leases and lost replies, on the transition function that ships.
//!
//! [`history`] judges what clients and a service saw of many operations: nothing twice, nothing
//! acknowledged lost.
//!
//! [`sagas`] rehearses operations of many steps: each step fails, is repeated, and is the last that
//! the process does, on any store.
//!
//! [`files`] keeps a store's directory as a crash would leave it.
//!
//! `servers`, a feature, starts private Redis and PostgreSQL servers for tests.

pub mod conformance;
pub mod files;
pub mod history;
pub mod model;
pub mod sagas;
#[cfg(feature = "servers")]
pub mod servers;
