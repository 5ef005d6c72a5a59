//! Private servers for tests: real programs, each with its own port, directory and process. They
//! end with the test, even if it is killed.
//!
//! A missing program is an error that says what to install.
//!
//! The servers are those of the machine, unless an environment variable names others; there is no
//! fallback if these are missing. `cargo xtask versions` sets the variables.
//!
//! - `JUSTONCE_POSTGRES_BIN`: the directory of PostgreSQL's `initdb` and `postgres`. `psql` and
//!   `pg_isready` are the machine's if it has none.
//! - `JUSTONCE_REDIS_SERVER`: the program to start as Redis, as a sentinel too: another
//!   `redis-server`, or `valkey-server`. `redis-cli` is the machine's.

mod authority;
mod key_server;
mod pgbouncer;
mod port;
mod postgres;
mod postgres_template;
mod postgres_user;
mod process;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod tokens;
mod variables;
mod web_server;

pub use authority::{Authority, Certificate};
pub use key_server::{KeyAnswer, KeyServer};
pub use pgbouncer::{PgBouncer, PoolMode};
pub use port::free_port;
pub use postgres::{PostgresOptions, PostgresServer};
pub use process::{Process, ServerError, program};
pub use redis::RedisServer;
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use tokens::{SigningKey, TokenAlgorithm, jwks, unsigned};
pub use web_server::{WebServer, node_packages, python};
