//! Settled outcomes kept in front of a store.

mod conformance;
mod props;
mod races;
mod store;
