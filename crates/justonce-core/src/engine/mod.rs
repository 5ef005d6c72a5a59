//! One engine, many doors: begin, execute, complete, replay on any store.
//!
//! [`Engine::run`] does all of it. Under it lies the step-by-step API: [`Engine::begin`] gives a
//! [`HeldClaim`], whose lease is renewed in the background for as long as it is held.
//!
//! What becomes of an operation when things go wrong:
//!
//! | what happens | under `hold` | under `rerun` and `resume` |
//! |---|---|---|
//! | the handler's future is dropped | unknown | the next begin takes over |
//! | the handler panics | unknown, the panic goes on | the next begin takes over, the panic goes on |
//! | the handler's time is over | unknown | the next begin takes over |
//! | the process dies | unknown when the lease has lapsed | taken over when it has lapsed |
//! | the claim is lost to another owner | cannot happen | the handler is dropped: [`Ran::Superseded`] |
//! | begin: the store says *not applied* | an error, nothing ran | the same |
//! | begin: the store does not know | an error, nothing ran; the claim is given back once known | the same |
//! | complete: the store does not know | tried again; if that fails, [`RunError::NotStored`] with the outcome, and further tries in the background | the same |

mod begin;
mod builder;
mod context;
mod drive;
mod held;
mod ran;
mod reaper;
mod renewal;
mod run;
mod settle;
mod wait;

pub use begin::Begun;
pub use builder::{Engine, EngineBuilder, Limits, Load};
pub use context::{Context, SaveError};
pub use held::{HeldClaim, Settlement};
pub use ran::{HandlerError, Ran, RunError};
pub use reaper::{Reaper, ReaperSettings};
