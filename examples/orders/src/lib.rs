//! Orders over three services that survive any crash: each order ends entirely done or entirely
//! undone, and nothing happens twice.
//!
//! - [`service`]: inventory, payment and shipping, each with a [`ledger`] of its own. They
//!   recognise a repetition by its key, with the layer of Justonce on the embedded store.
//! - [`by_saga`]: an order service on the embedded store, by a saga.
//! - [`by_phases`]: another one on PostgreSQL, by phases, with a table of its own.
//! - [`check`]: whether three ledgers agree with each other, and with what the clients were told.
//!
//! The README beside this shows how to run it by hand; `tests/` kills the order services with
//! SIGKILL at every boundary of every step.

pub mod by_phases;
pub mod by_saga;
pub mod call;
pub mod check;
pub mod cli;
pub mod front;
pub mod ledger;
pub mod order;
pub mod serve;
pub mod service;
pub mod services;
pub mod stage;
pub mod trade;
