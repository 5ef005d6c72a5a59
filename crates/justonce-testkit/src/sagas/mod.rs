//! Rehearsals for operations of many steps, on any store: each step fails in turn, is repeated in
//! turn, and the process dies before and after each, also while it rolls back. A ledger is the
//! witness: everything is done, or everything undone, and nothing is done twice.
//!
//! The steps under test call a [`Downstream`] where they would call another service. It recognises
//! repetitions by the key, as services must that a saga calls, and brings about the trouble of the
//! case. [`rehearse`] goes through all cases:
//!
//! ```
//! use justonce_core::memory::MemoryStore;
//! use justonce_core::{
//!     HandlerError, Key, ManualClock, OnLapsed, Operation, Outcome, Policy, Scope,
//! };
//! use justonce_testkit::sagas::{Act, Case, CallReply, rehearse};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::default();
//! let store = Arc::new(MemoryStore::new(clock.clone()));
//! // An operation of one step, which cannot be undone, and which must not be refused.
//! let cases = Case::all(&["charge"]);
//! let cases = cases.into_iter().filter(|case| case.act == Act::Step && case.trouble.is_passing());
//! rehearse(store, &clock, &["charge"], cases, async |engine, name, downstream| {
//!     let policy = Policy::builder().on_lapsed(OnLapsed::Resume).build().ok()?;
//!     let key = Key::client(&name).ok()?;
//!     let operation = Operation::without_fingerprint(Scope::global(), key).with_policy(policy);
//!     let ran = engine.run(&operation, async |context| {
//!         match downstream.step("charge", &context.child_key("charge")).await {
//!             CallReply::Ok => Ok(Outcome::empty()),
//!             CallReply::Refused | CallReply::NoAnswer => Err(HandlerError::Unknown),
//!         }
//!     });
//!     ran.await.ok()?.outcome().map(|_| true)
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```

mod case;
mod downstream;
mod mortal;
mod rehearsal;

pub use case::{Act, Case, Trouble};
pub use downstream::{CallReply, Downstream};
pub use mortal::Mortal;
pub use rehearsal::{Deviated, rehearse};
