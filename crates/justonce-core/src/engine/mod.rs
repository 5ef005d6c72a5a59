//! One engine, many entry points: begin, execute, complete, replay on any store.
//!
//! [`Engine::run`] does all of it. Under it lies the step-by-step API: [`Engine::begin`] gives a
//! [`HeldClaim`], whose lease is renewed in the background for as long as it is held.
//!
//! What becomes of an operation when things go wrong:
//!
//! - **The handler's future is dropped, it panics, or its time is over**: it may have happened.
//!   Under `hold` the operation is unknown, otherwise the next begin takes over. A panic goes on.
//! - **The future is dropped after the handler has ended**: what it said is stored in the
//!   background.
//! - **The process dies**: the same, once the lease has lapsed.
//! - **The claim is lost to another owner**: the handler is dropped, [`Ran::Superseded`]. Under
//!   `hold` that happens only after the operation was resolved as released while its owner
//!   still lived.
//! - **Begin, and the store says *not applied***: an error; nothing ran.
//! - **Begin, and the store does not know**: an error; nothing ran. A claim that was taken after
//!   all is given back in the background.
//! - **Complete, and the store does not know**: tried again. If that takes too long,
//!   [`RunError::NotStored`] with the outcome, and further tries in the background.
//!
//! What happens in the background, renewals included, happens on a thread of the engine's own. It
//! needs no runtime of the callers': each may end or block by itself. Where tokio's time is paused,
//! give the engine the runtime of the test: [`EngineBuilder::background`].

mod background;
mod begin;
mod builder;
mod context;
mod expire;
mod handler_error;
mod handling;
mod held_claim;
mod inspect;
mod json;
mod not_stored;
mod orphaned_begins;
mod probe;
mod ran;
mod reaper;
mod renewal;
mod resolve;
mod run;
mod settle;
mod wait;

pub use begin::Begun;
pub use builder::{Engine, EngineBuilder, Limits, Load};
pub use context::{Context, Explainer, SaveError};
pub use handler_error::{Classify, HandlerError};
pub use held_claim::{HeldClaim, Settlement};
pub use inspect::Inspected;
pub use json::RunJsonError;
pub use not_stored::{NotStored, NotStoredObserver, NotStoredWhy};
pub use probe::{Probe, ProbeEnd, ProbeReport, Probed, Prober, ProberSettings, Unresolved};
pub use ran::{Ran, RunError};
pub use reaper::ReaperSettings;
