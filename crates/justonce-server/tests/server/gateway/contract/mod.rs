//! The HTTP contract, line by line, on the real gateway: a process between real connections, in
//! real time, on each store it can be asked to use.
//!
//! `contract::key::h07_…::redis` is the line h07 on Redis, `contract::key::every_line_on_postgres`
//! all lines of that file on PostgreSQL. Each line has a store of its own: a directory, a private
//! Redis, a schema in a private PostgreSQL. Where Redis or PostgreSQL is the store, outcomes are
//! not kept in the gateway, so that each replay is read back from the store; lines that are about
//! several gateways also run in tiers, where they are kept.
//!
//! What a gateway does not show from outside is proven by the layer's own tests, in
//! `crates/justonce-http/tests/contract`, in virtual time:
//!
//! - h11: that the version of the fingerprint's algorithm is stored, and that a record of another
//!   version causes no mismatch. A gateway has one version, and shows none.
//! - h13: that a mismatch extends no retention. A record's end cannot be asked for.
//! - h22: the reason that is kept for operators. They cannot be told it yet.
//! - h24 on the embedded store: one process at a time has it, so nobody takes over from an owner
//!   that lives. After its death, see `crash`.
//! - h26: verdicts by an extension of the response, for services in the same process.
//! - h27 and h37: outcomes and failures that an operator gave. There is no such command yet.
//! - h31: a caller that reads nothing for 30 seconds is left behind. That takes 30 seconds.
//! - h35: stores that answer nonsense. Real ones are not told to.
//! - h38: panics. Nothing that is sent to a gateway makes it panic.
//! - Handlers and extractors, which are no part of a gateway.

// A line that no test runs must not go unnoticed.
#![warn(dead_code)]

mod away;
mod caller_limits;
mod concurrency;
mod cors;
mod errors;
mod every;
mod execution;
mod fingerprint;
pub(crate) mod http2;
mod identity;
mod key;
mod marks;
mod paths;
mod place;
mod replay;
pub(crate) mod service;
mod stage;
mod storing;
mod streams;
pub(crate) mod tokens;

pub(crate) use place::Place;
pub(crate) use stage::{Stage, assert_fresh, assert_problem, assert_replay};
