//! The Redis store of Justonce: many processes, one truth. Single node, Sentinel and Cluster;
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
//! change records by the rules; what a step only reads is answered by the pure function
//! [`transition`](justonce_core::transition) itself.
//!
//! Those who wait for a running operation are woken by the server: a claim that somebody waits for
//! is marked, and only the end of a marked claim is published.
//!
//! With the feature `tls` (rustls and ring), addresses that begin with `rediss` make every
//! connection speak TLS, to servers whose certificates fit: also to those that sentinels or nodes
//! of a cluster name. The machine's authorities vouch for them, or only those in the file that
//! `ca_file` names.
//!
//! [`RedisOutcomes`] is another use of Redis: a cache in front of a store that is elsewhere.

mod address;
mod checks;
mod cluster;
mod codec;
mod confirm;
mod error;
mod fitness;
mod layout;
mod link;
mod listing;
mod maintenance;
mod node;
mod nodes;
mod open;
mod outcomes;
mod records;
mod reply;
mod scripts;
mod sentinel;
mod slots;
mod store;
mod subscription;
mod tls;
mod together;
mod waiters;

pub use open::RedisStoreBuilder;
pub use outcomes::{
    MAX_OUTCOME_BYTES, OUTCOME_AGE, OUTCOME_REPLY_TIMEOUT, RedisOutcomes, RedisOutcomesBuilder,
};
pub use store::RedisStore;
