//! Restart without a refused connection: a running gateway starts its successor, and hands its
//! listening sockets over to it.
//!
//! ```text
//! predecessor                                successor
//! SIGUSR2: starts it, sends the sockets ───▶ reads its configuration and files
//! goes on                                ◀── "prepared"
//! says `Connection: close` (embedded store: accepts nothing more, ends what
//! runs, closes the store), "store"       ───▶ opens the store, accepts connections
//! ends                                   ◀── "serving"
//! ```
//!
//! The sockets are open in one of the two at any moment, so connections wait in their queues and
//! none is refused. If the successor fails before it serves, the predecessor opens the store again
//! and goes on. If the predecessor dies, the successor goes on as after a crash.

mod channel;
mod conduct;
mod predecessor;
mod quiet;
mod successor;

pub(crate) use conduct::{Handover, Lost, Parts, Served};
pub(crate) use predecessor::{Line, Predecessor};
pub(crate) use quiet::{InFlight, Requests};
pub(crate) use successor::Start;
