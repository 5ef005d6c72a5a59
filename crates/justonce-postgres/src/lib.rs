//! The PostgreSQL store of Justonce, for any number of processes, with the caller's writes in the
//! same transaction.
//!
//! ```no_run
//! use justonce_core::{
//!     Engine, Fingerprint, Key, OnLapsed, Operation, Outcome, Policy, Scope,
//! };
//! use justonce_postgres::PostgresStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::open("postgres://shop@db.internal/shop").await?;
//! let engine = Engine::new(store.clone());
//! let scope = Scope::builder().tenant("acme").operation("charge").build()?;
//! let fingerprint = Fingerprint::of_json(&scope, br#"{"amount": 5}"#);
//! let operation = Operation::new(scope, Key::client("order-17")?, fingerprint);
//!
//! // Effects elsewhere: as with every store.
//! engine.run(&operation, async |_| Ok(Outcome::bytes("charged 5"))).await?;
//!
//! // Effects in this database: exactly once. An attempt that was not committed may run again.
//! let scope = Scope::builder().tenant("acme").operation("transfer").build()?;
//! let fingerprint = Fingerprint::of_json(&scope, br#"{"cents": 5}"#);
//! let transfer = Operation::new(scope, Key::client("transfer-17")?, fingerprint)
//!     .with_policy(Policy::builder().on_lapsed(OnLapsed::Rerun).build()?);
//! let ran = store
//!     .transactional(&engine, &transfer, async |tx, _context| {
//!         tx.execute("UPDATE accounts SET cents = cents - 5 WHERE name = 'ada'", &[]).await?;
//!         Ok(Outcome::bytes("moved 5"))
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! The rules of the protocol are inside the database (`migrations/`, `sql/`), so that each step is
//! one statement: a first-time operation takes two, a duplicate one that neither writes nor locks.
//! Concurrent steps share statements, and with them commits and syncs of the disk. Time is the
//! server's. The server wakes callers that wait for an operation. [`migrate`] creates and updates
//! the schema; [`tx`] is for the caller's own writes.
//!
//! Behind PgBouncer it needs `pool_mode = session`; a pooler that gives each transaction another
//! connection to the server is refused when the store is opened.
//!
//! With the feature `tls` (rustls and ring), `sslmode=verify-full` in the address uses TLS for
//! every connection, and verifies the certificate. The trust roots are those of the machine, or
//! those in `sslrootcert=FILE`. `require` and `verify-ca` verify as much. Without `sslmode`, there
//! is no TLS.

mod address;
mod batch;
mod committed;
mod connections;
mod db;
mod endpoint;
mod error;
mod list;
mod maintenance;
pub mod migrate;
mod numbers;
mod open;
mod permits;
mod policy;
mod pooler;
mod read;
mod records;
mod reply;
mod row;
mod schema;
mod statements;
mod step;
mod store;
mod subscription;
mod timeline_codec;
mod tls;
pub mod tx;
mod waiters;

pub use address::InvalidAddress;
pub use open::PostgresBuilder;
pub use schema::InvalidSchema;
pub use store::PostgresStore;
