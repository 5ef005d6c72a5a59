//! Tools that test a store, and what is built on one.
//!
//! [`conformance`](mod@conformance) is one suite for all backends: it drives every case of the
//! protocol through a store and compares it with the pure function. Ten lines run it.
//!
//! [`history`] judges what clients and a service saw of many operations: nothing twice, nothing
//! acknowledged lost.
//!
//! [`sagas`] rehearses operations of many steps: each step fails, is repeated, and is the last that
//! the process does, on any store.
//!
//! [`files`] keeps a store's directory as a crash would leave it.

pub mod conformance;
pub mod files;
pub mod history;
pub mod sagas;
