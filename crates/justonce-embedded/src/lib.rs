//! The durable store of Justonce inside your own process: no server, one directory.
//!
//! ```
//! use justonce_core::{Engine, Fingerprint, Key, Operation, Outcome, Ran, Scope};
//! use justonce_embedded::EmbeddedStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("justonce-data");
//! let engine = Engine::new(EmbeddedStore::open(&path)?);
//! let scope = Scope::builder().tenant("acme").operation("charge").build()?;
//! let fingerprint = Fingerprint::of_json(&scope, br#"{"amount": 5}"#);
//! let operation = Operation::new(scope, Key::client("order-17")?, fingerprint);
//! engine.run(&operation, async |_| Ok(Outcome::bytes("charged 5"))).await?;
//! drop(engine);
//!
//! // After a restart the outcome is still there.
//! let engine = Engine::new(EmbeddedStore::open(&path)?);
//! let again = engine.run(&operation, async |_| unreachable!("it runs once")).await?;
//! assert_eq!(again, Ran::Replayed(Outcome::bytes("charged 5")));
//! # Ok(())
//! # }
//! ```
//!
//! What is in progress or unknown lives in memory, mirrored on disk as far as the policy needs it.
//! What is settled lives on disk behind a cache, also what waits for a retry. Callers decide in
//! parallel; one writer thread makes their decisions durable in a write-ahead log, one sync for all
//! that came together ([`commit`]); another applies them to the storage engine in the background.
//! Point reads wait for no writer, and one that waits for the disk keeps no other task waiting.
//! What is in memory is bounded ([`Bounds`]).
//!
//! Beside the records lie rows of your own, written in one batch with a checkpoint or an
//! outcome ([`EmbeddedStore::checkpoint_with`], [`EmbeddedStore::outcome_with`]).
//!
//! After an I/O error or on a full disk the store stops: replays of what is on disk go on, every
//! step that would write is refused. A restart recovers everything that was acknowledged. The
//! storage engine says why it failed in the background through the crate `log` only.

mod applier;
pub mod backup;
mod blob_names;
mod bounds;
mod check;
mod clock;
mod clock_floor;
mod close;
pub mod commit;
mod commit_delay;
mod directory_lock;
mod disk;
#[cfg(feature = "simulation")]
mod driver;
mod error;
mod files;
mod journal;
mod listing;
mod live_order;
mod maintenance;
mod open;
mod reads;
mod records;
mod recover;
mod refresh;
mod restored;
mod row_writes;
mod rows;
mod state;
mod step;
mod sweep;
mod unindexed;
mod utc;
mod wal;
mod watermark;
mod write;
mod writer;

pub use bounds::Bounds;
pub use clock::SystemClock;
pub use commit_delay::CommitDelay;
#[cfg(feature = "simulation")]
pub use driver::Driver;
pub use error::{CloseError, OpenError};
pub use open::{EmbeddedBuilder, EmbeddedStore};
pub use row_writes::RowWrites;
pub use rows::{RowName, RowNameError};
