//! Tools that prove a store right.
//!
//! [`conformance`](mod@conformance) is one suite for all backends: it drives every case of the
//! protocol through a store and compares it with the pure function. Ten lines run it.

pub mod conformance;
