//! Private servers for tests: real programs, each with its own port, directory and process, ended
//! with the test, whatever becomes of it.
//!
//! A missing program is an error that says what to install; nothing is skipped.

mod authority;
mod port;
mod postgres;
mod postgres_template;
mod process;
mod redis;
mod redis_cluster;
mod redis_sentinel;

pub use authority::{Authority, Certificate};
pub use port::free_port;
pub use postgres::{PostgresOptions, PostgresServer};
pub use process::{Process, ServerError, program};
pub use redis::RedisServer;
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
