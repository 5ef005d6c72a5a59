//! The model check: every order of events that a few workers, a network that loses, repeats and
//! delays, a clock and a crashing store can bring about, under the **real** rules.
//!
//! The model holds no rule of the protocol. It calls a [`Rules`] function, by default
//! [`justonce_core::transition`], and an auditor checks every step against the promises alone:
//! each [`Law`] is a property of the checker. [`Sight`]s are the things that must be seen to
//! happen, so that a law is never kept because nothing went wrong. [`Mutant`]s are the real rules
//! with one of them broken; a law must catch each.
//!
//! | what goes wrong | how the model does it |
//! |---|---|
//! | a worker crashes, at any point | [`Move::Crash`]: it forgets everything |
//! | a lease lapses, a back-off or a retention ends | [`Move::Tick`]: steps before and after it |
//! | applied, and the reply is lost | [`Reply::Lost`]: the worker must send it again, or crash |
//! | not applied, and the worker cannot tell | [`Reply::Delayed`], and it never arrives |
//! | applied twice, or late, or overtaken | [`Reply::Delayed`], then [`Move::Arrive`] at any time |
//! | a checkpoint comes after the next one | a delayed [`Request::Save`], sent again before |
//! | the store crashes | [`Move::Outage`]: what need not be on disk is forgotten |
//! | the outcome is unknown | [`Move::Resolve`], always truthful |
//!
//! The whole space of a [`Setup`] is explored, none of it is sampled:
//!
//! ```
//! use justonce_model::{Protocol, Setup};
//! use stateright::{Checker, Model};
//!
//! let model = Protocol::shipped(Setup::tiny()?);
//! model.checker().spawn_bfs().join().assert_properties();
//! # Ok::<(), justonce_model::SetupError>(())
//! ```

mod laws;
mod mutants;
mod protocol;
mod setup;
mod world;

pub use laws::Law;
pub use mutants::{MUTANTS, Mutant};
pub use protocol::{Move, Protocol, Reply, Rules};
pub use setup::{Setup, SetupError, Sight};
pub use world::{
    Book, Bounds, Broken, Disk, End, Ended, Held, Phase, Point, Ran, Request, Truth, Verdict, World,
};
