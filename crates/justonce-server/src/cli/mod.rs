//! The command line: one file per command, and what `keys` and `sagas` share.

mod admin;
mod check;
mod commands;
mod keys;
mod meter;
mod migrate;
mod print;
mod sagas;
mod store;

pub use commands::run;
