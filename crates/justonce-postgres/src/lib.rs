//! The PostgreSQL store, for any number of processes at once, with the caller's writes in the same
//! transaction.
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
//! // Effects in this database: exactly once. What was not committed had none, so it may run again.
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
//! one statement: a first-time operation costs two, a duplicate one that neither writes nor locks.
//! Callers who come at once share statements, and with them commits and syncs of the disk. Time is
//! the server's. Those who wait for an operation are told by the server. The schema is made and
//! kept up to date by [`migrate`]; [`tx`] is for the caller's own writes.
//!
//! Behind PgBouncer it needs `pool_mode = session`; a pooler that gives each transaction another
//! connection to the server is refused when the store is opened.
//!
//! With the feature `tls` (rustls and ring), an address that says `sslmode=verify-full` makes every
//! connection speak TLS, to a server whose certificate fits. `sslrootcert=FILE` names the only
//! authorities that may vouch for it; without it, those of the machine do. `require` and
//! `verify-ca` check as much. Without `sslmode`, TLS is not spoken.

mod address;
mod begun;
mod connections;
mod db;
mod endpoint;
mod error;
mod listener;
mod maintenance;
pub mod migrate;
mod numbers;
mod open;
mod pooled;
mod promise;
mod read;
mod records;
mod schema;
mod statements;
mod step;
mod tls;
mod together;
pub mod tx;
mod words;

pub use address::InvalidAddress;
pub use open::{PostgresBuilder, PostgresStore};
pub use schema::InvalidSchema;
