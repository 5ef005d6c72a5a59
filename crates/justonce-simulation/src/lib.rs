//! The simulation: the engine, the layers and the stores that ship, on a scheduler and a clock that
//! are driven by one seed.
//!
//! A run has processes with callers. Futures are dropped at any await, handlers panic, hang and
//! fail, runtimes stand still, store calls are slow, hang, lose their replies and are carried out
//! late or twice, clocks jump, processes crash and are started again. An auditor that knows only
//! the promises of `docs/guarantees.md` reads what callers and handlers saw.
//!
//! The same seed gives the same history: everything runs on one thread, in tokio's paused time, and
//! draws from the seed. Only the runtimes that block or end need real threads, in a world of their
//! own.

mod auditor;
mod base;
mod caller;
mod clock;
mod draw;
mod embedded;
mod generate;
mod history;
mod last_calls;
mod network;
mod operator;
mod panics;
mod plan;
mod process;
mod run;
mod running;
mod runtimes;
mod search;
mod shrink;
mod worlds;

pub use auditor::Violation;
pub use plan::World;
pub use search::{Found, Search, Seed};
pub use worlds::{Failure, history, run_seed};
