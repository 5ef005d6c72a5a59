//! The Redis store of Justonce, for any number of processes. Single node, Sentinel and Cluster;
//! Redis 7.0 or later, or Valkey.
//!
//! ```no_run
//! use justonce_core::{Engine, Fingerprint, Key, Operation, Outcome, Scope};
//! use justonce_redis::RedisStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::builder("redis://127.0.0.1:6379").open().await?;
//! let engine = Engine::new(store);
//! let scope = Scope::builder().tenant("acme").operation("charge").build()?;
//! let fingerprint = Fingerprint::of_json(&scope, br#"{"amount": 5}"#);
//! let operation = Operation::new(scope, Key::client("order-17")?, fingerprint);
//! engine.run(&operation, async |_| Ok(Outcome::bytes("charged 5"))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each step of the protocol is one Lua script in the folder `lua`, and one round trip: a
//! first-time operation takes two commands, a duplicate one. Time is the server's. The scripts
//! change records by the rules; steps that change nothing are answered by the pure function
//! [`transition`](justonce_core::transition).
//!
//! The server wakes callers that wait for a running operation: a claim with waiters is marked, and
//! only the end of a marked claim is published.
//!
//! With the feature `tls` (rustls and ring), addresses that begin with `rediss` use TLS for every
//! connection, and verify every certificate, also of servers that sentinels or nodes of a cluster
//! name. The trust roots are those of the machine, or those in `ca_file`.
//!
//! [`RedisOutcomes`] is a cache of outcomes in front of another store.

mod address;
mod batch;
mod cluster;
mod codec;
mod connection;
mod discovery;
mod error;
mod layout;
mod list;
mod lock;
mod maintenance;
mod monitor;
mod node;
mod nodes;
mod open;
mod outcomes;
mod records;
mod replicas;
mod reply;
mod requirements;
mod scripts;
mod sentinel;
mod step;
mod store;
mod subscription;
mod tls;
mod waiters;

pub use open::RedisStoreBuilder;
pub use outcomes::{
    MAX_OUTCOME_BYTES, OUTCOME_AGE, OUTCOME_REPLY_TIMEOUT, RedisOutcomes, RedisOutcomesBuilder,
};
pub use store::RedisStore;
