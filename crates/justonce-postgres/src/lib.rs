//! The PostgreSQL store, with the caller's writes in the same transaction.

mod db;
mod error;
mod listener;
mod maintenance;
pub mod migrate;
mod numbers;
mod open;
mod promise;
mod read;
mod records;
mod schema;
mod statements;
mod step;
pub mod tx;
mod words;

pub use open::{PostgresBuilder, PostgresStore};
pub use schema::InvalidSchema;
