//! Private servers for tests: real programs, each with its own port, directory and process, ended
//! with the test, whatever becomes of it.
//!
//! A missing program is an error that says what to install; nothing is skipped.

mod port;
mod postgres;
mod postgres_template;
mod process;

pub use port::free_port;
pub use postgres::{PostgresOptions, PostgresServer};
pub use process::{Process, ServerError, program};
