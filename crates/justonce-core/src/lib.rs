//! The Justonce protocol: an operation takes effect **once**, however often it is asked for.
//!
//! An [`Operation`] is a key in a scope. The [`Engine`] begins it in a store: either the caller
//! gets the claim and executes, or it learns what became of the operation, and the stored outcome
//! is replayed.
//!
//! ```
//! use justonce_core::memory::MemoryStore;
//! use justonce_core::{Engine, Fingerprint, Key, ManualClock, Operation, Outcome, Ran, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new(MemoryStore::new(ManualClock::default()));
//! let scope = Scope::builder().tenant("acme").operation("charge").build()?;
//! let fingerprint = Fingerprint::of_json(&scope, br#"{"amount": 5}"#);
//! let operation = Operation::new(scope, Key::client("order-17")?, fingerprint);
//!
//! let first = engine.run(&operation, async |_| Ok(Outcome::bytes("charged 5"))).await?;
//! assert_eq!(first, Ran::Executed(Outcome::bytes("charged 5")));
//!
//! let again = engine.run(&operation, async |_| unreachable!("it runs once")).await?;
//! assert_eq!(again, Ran::Replayed(Outcome::bytes("charged 5")));
//! # Ok(())
//! # }
//! ```
//!
//! No network, no disk and no wall clock here. Every rule is in one pure function,
//! [`transition`]; stores and entry points are built around it.

mod canonical;
mod claim;
mod clock;
pub mod codec;
pub mod engine;
mod entropy;
mod error;
mod fingerprint;
mod hash;
mod key;
pub mod memory;
pub mod metrics;
mod operation;
mod outcome;
mod pointer;
mod policy;
mod protocol;
mod record_id;
mod scope;
pub mod store;
pub mod worker;

pub use canonical::Canonical;
pub use claim::{
    Checkpoint, CheckpointError, Fence, MAX_CHECKPOINT_BYTES, MAX_CHECKPOINT_NAME_BYTES,
    MAX_OWNER_BYTES, Owner, Token,
};
pub use clock::{Clock, ManualClock, TimerClock, Timestamp};
pub use engine::{Classify, Engine, HandlerError, HeldClaim, Ran, RunError, RunJsonError};
pub use entropy::Entropy;
pub use error::{Damage, DamagedRecord, Effect, StoreError, StoreErrorKind, StoreResult};
pub use fingerprint::{Fingerprint, FingerprintBuilder, FingerprintKey};
pub use key::{Key, KeyError, MAX_KEY_BYTES};
pub use operation::{DEFAULT_WAIT, OnConcurrent, Operation};
pub use outcome::{
    Body, Header, MAX_BODY_BYTES, MAX_HEADER_BYTES, MAX_HEADERS, Outcome, OutcomeBuilder,
    OutcomeError,
};
pub use pointer::{JsonPointer, PointerError};
pub use policy::{
    AfterRetention, BackOff, MAX_LEASE, MAX_RETENTION, MIN_LEASE, OnFailure, OnLapsed, Policy,
    PolicyBuilder, PolicyError,
};
pub use protocol::{
    Abandonment, Action, Answer, AwaitingRetry, Begin, Busy, BusyWhy, Change, ClaimEnd, Claimed,
    Decision, Entry, Existing, Failed, Failure, FailureKind, HowResolved, InProgress, Lost,
    MAX_NOTE_TEXT_BYTES, MAX_NOTES, Note, NoteKind, Record, RefusedStep, Replay, Resolution,
    Resolve, Resolver, Settled, State, StateName, Step, Subject, SweepDone, Timeline, Tombstone,
    Unknown, UnknownReason, UnknownSince, Why, ends_claim, is_running, state_at, transition,
};
pub use record_id::RecordId;
pub use scope::{MAX_PART_NAME_BYTES, MAX_SCOPE_BYTES, Scope, ScopeBuilder, ScopeError};
