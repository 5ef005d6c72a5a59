//! What clients and a service saw of many operations, and whether it may be.
//!
//! A [`Recorder`] takes down every request before it is sent, every effect when it happens and
//! every reply when it has arrived, in one order. [`judge`] reads the whole history: nothing took
//! effect twice, nothing that was acknowledged is lost, and every operation has one outcome.
//!
//! ```
//! use justonce_testkit::history::{Guarantee, Recorder, Reply, judge};
//!
//! let recorder = Recorder::default();
//! // A client asks, the service does it, the client hears of it.
//! let first = recorder.asked("order-17");
//! recorder.effect("order-17", "charged 5");
//! recorder.replied(first, Reply::done("charged 5"));
//! // It asks again and gets the same.
//! let again = recorder.asked("order-17");
//! recorder.replied(again, Reply::replay("charged 5"));
//! assert!(judge(&recorder.history(), Guarantee::AtMostOnce).is_fine());
//!
//! // A second charge is an offence, whatever was replied.
//! recorder.effect("order-17", "charged 5 more");
//! assert!(!judge(&recorder.history(), Guarantee::AtMostOnce).is_fine());
//! ```

mod event;
mod judge;
mod operation;
mod recorder;
#[cfg(test)]
mod tests;
mod verdict;

pub use event::{Event, Reply, RequestId};
pub use judge::judge;
pub use recorder::{History, Recorder, Tally};
pub use verdict::{Figures, Guarantee, Offence, OffenceKind, Verdict};
