//! An operation takes effect **once**, however often it is asked for: under retries, duplicates,
//! concurrency, crashes, lost replies and late arrivals.
//!
//! ```
//! use justonce::{EmbeddedStore, Engine, Fingerprint, Key, Operation, Outcome, Ran, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! let engine = Engine::new(EmbeddedStore::open(path)?);
//! let scope = Scope::builder().tenant("acme").operation("charge").build()?;
//! let fingerprint = Fingerprint::of_json(&scope, br#"{"amount": 5}"#);
//! let operation = Operation::new(scope, Key::client("order-17")?, fingerprint);
//!
//! // However often and by however many this is called, the handler runs once.
//! let ran = engine.run(&operation, async |_| Ok(Outcome::bytes("charged 5"))).await?;
//! assert_eq!(ran, Ran::Executed(Outcome::bytes("charged 5")));
//! # Ok(())
//! # }
//! ```
//!
//! This crate only gathers the others: [`justonce_core`] is the protocol, the feature `embedded`
//! (on by default) adds the durable store in your process, `redis` and `postgres` the stores that
//! many processes share, `tls` lets these two be reached with TLS, `sqlx` takes transactions of
//! sqlx for your own writes in PostgreSQL, `http` is the layer for axum and any other tower
//! service, and `saga` adds operations of many steps.

#[cfg(all(doctest, feature = "http"))]
mod readme;

pub use justonce_core::*;

#[cfg(feature = "embedded")]
pub use justonce_embedded as embedded;
#[cfg(feature = "embedded")]
pub use justonce_embedded::{
    Bounds, CloseError, CommitDelay, EmbeddedBuilder, EmbeddedStore, OpenError, RowName,
    RowNameError, RowWrites, SystemClock,
};
#[cfg(feature = "http")]
pub use justonce_http as http;
#[cfg(feature = "postgres")]
pub use justonce_postgres as postgres;
#[cfg(feature = "redis")]
pub use justonce_redis as redis;
#[cfg(feature = "saga")]
pub use justonce_saga as saga;
