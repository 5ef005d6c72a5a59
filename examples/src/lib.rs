//! Small programs that show Justonce at work; see `examples/`.

mod database;

pub use database::Database;
