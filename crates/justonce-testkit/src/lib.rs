//! Tools that prove a store right: the conformance suite.

pub mod conformance;
