//! Tools that prove a store and its rules right.
//!
//! [`conformance`](mod@conformance) is one suite for all backends: it drives every case of the
//! protocol through a store and compares it with the pure function. Ten lines run it.
//!
//! [`model`] checks the rules themselves: every interleaving of a few workers, crashes, lapsed
//! leases and lost replies, on the transition function that ships.

pub mod conformance;
pub mod model;
