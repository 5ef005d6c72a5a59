//! The executable specification: a store in memory that does what the rules say, and nothing else.
//!
//! Everything is lost with the process. Use it for tests, for trying things out, and as the
//! reference for other backends.

mod maintenance;
mod records;
mod table;

pub use table::MemoryStore;
