//! `cargo xtask mutants`: breaks each script of Redis and each statement and function of
//! PostgreSQL, one place at a time, and shows which test notices.
//!
//! The stores have their scripts inside the program. So the tests are built once, and for each
//! mutant the text of one file is replaced inside a copy of the test programs, by a text of the
//! same length. Neither the sources nor the usual build change.
//!
//! A mutant is one line of a table: `redis.rs`, `redis_parts.rs`, `postgres.rs`, `migrations.rs`.
//! Each script, statement and current function must have one.

mod command;
mod files;
mod migrations;
mod mutant;
mod postgres;
mod program;
mod redis;
mod redis_parts;
mod report;
mod store;
mod suite;
#[cfg(test)]
mod tests;

pub(crate) use command::{Options, run};
