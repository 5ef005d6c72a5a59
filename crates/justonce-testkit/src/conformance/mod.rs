//! One conformance suite for all stores, generated from the pure function.
//!
//! Every store repeats the rules of the protocol in its own language. Here each of them is
//! compared with [`transition`](justonce_core::transition), which is the oracle: every (state ×
//! event × time relation × policy) is driven through the store, and each answer, each stored
//! record and each timeline must be the one that the function gives.
//!
//! # For a new backend
//!
//! A store that takes a clock needs these lines in a file of its `tests` folder. They make a
//! module with one test for each chapter; each gets a store of its own.
//!
//! ```
//! use justonce_core::memory::MemoryStore;
//! use justonce_testkit::conformance::{OnManualClock, Survival};
//!
//! justonce_testkit::conformance!(memory, || OnManualClock::open(
//!     Survival::Nothing,
//!     async |clock| Ok(MemoryStore::new(clock))
//! ));
//! # fn main() {}
//! ```
//!
//! Each chapter is also a function:
//!
//! ```
//! use justonce_core::memory::MemoryStore;
//! use justonce_testkit::conformance::{OnManualClock, Survival, Verdict, fencing, run};
//!
//! # fn main() -> Verdict {
//! let make = || OnManualClock::open(Survival::Nothing, async |clock| Ok(MemoryStore::new(clock)));
//! run(make, fencing)
//! # }
//! ```
//!
//! A durable store declares [`Survival::Durable`]. Its closure is called again for each restart and
//! must open what it opened before; whatever it owns, such as a temporary directory, lives as long
//! as the store. A store with a clock of its own implements [`Backend`] instead, with a limit to
//! how far that clock runs by itself.
//!
//! # Chapters
//!
//! | chapter | what must hold |
//! |---|---|
//! | [`every_case`] | each of some 40,000 generated cases matches the function |
//! | [`races_2`], [`races_50`], [`races_1000`] | of so many concurrent callers one wins |
//! | [`duplicates`] | through the engine, 50 operations with 16 callers each run once each |
//! | [`fencing`] | an old fence changes nothing and leaves a note; fences only grow |
//! | [`waiters`] | every end of a claim wakes all its waiters, a renewal none |
//! | [`dropped`] | a call whose future is dropped was applied as a whole or not at all |
//! | [`retention`] | outcomes are replayed as long as promised; what has none is never forgotten |
//! | [`sweep`] | what time demands is done in portions, and nothing else |
//! | [`listing`] | each filter and page size lists each record once, in order |
//! | [`stats`] | counts and bytes are those of the records |
//! | [`timeline`] | the history is complete, in order and bounded |
//! | [`contents`] | what is stored reads back, up to every limit |
//! | [`restart`] | what had to be on disk is there; fences go on growing |
//!
//! # In production
//!
//! A clock for tests takes another way through a store than the clock of a server: each step has a
//! moment of its own, so that some stores send no batches then. These chapters run on the clock of
//! the machine, and their callers come at once. Each is a test of
//! [`conformance_in_production!`](crate::conformance_in_production).
//!
//! | chapter | what must hold |
//! |---|---|
//! | [`at_once`] | each generated case in which no time passes matches the function, in batches |
//! | [`lapses`] | leases, back-offs and retentions that really end, for many operations at once |
//! | [`reopened`] | what went in batches is there after the server was killed |
//! | [`duplicates`], [`dropped`], [`contents`] | as above |
//!
//! ```
//! use justonce_core::Timestamp;
//! use justonce_core::memory::MemoryStore;
//! use justonce_testkit::conformance::{OnSystemClock, Survival};
//! use std::time::SystemTime;
//!
//! justonce_testkit::conformance_in_production!(memory, || OnSystemClock::open(
//!     Survival::Nothing,
//!     async || Ok(MemoryStore::new(|| Timestamp::from(SystemTime::now())))
//! ));
//! # fn main() {}
//! ```
//!
//! A store with batches tells how many it has sent ([`OnSystemClock::counting`]): the chapters fail
//! if there were none.
//!
//! # How the cases are made
//!
//! A *script* is a list of acts with the moments at which they are due. Fences, tokens and moments
//! are named in it (the current fence, an older one, just before the lease ends) and become real
//! when it runs. Some thirty scripts lead to all states; there each event meets each relation to
//! each boundary in time that the state has. All scripts run on one store at once, each on its own
//! record: time moves from moment to moment, and at each moment all that is due happens
//! concurrently. Beside each record goes an oracle that knows only the function.

mod act;
mod at_once;
mod backend;
mod cases;
mod chapter;
mod contents;
mod coverage;
mod crowd;
mod deviation;
mod dropped;
mod duplicates;
mod every_case;
mod fencing;
mod lapses;
mod listing;
mod oracle;
mod population;
mod races;
mod reopened;
mod restart;
mod retention;
mod run;
mod runner;
mod scripts;
mod setting;
mod stage;
mod stats;
mod sweep;
mod system_clock;
#[cfg(test)]
mod tests;
mod timeline;
mod tolerance;
mod waiters;

pub use at_once::at_once;
pub use backend::{Backend, OnManualClock, Survival};
pub use chapter::run;
pub use contents::contents;
pub use deviation::{Deviation, Verdict};
pub use dropped::dropped;
pub use duplicates::duplicates;
pub use every_case::every_case;
pub use fencing::fencing;
pub use lapses::lapses;
pub use listing::listing;
pub use races::{races_2, races_50, races_1000};
pub use reopened::reopened;
pub use restart::restart;
pub use retention::retention;
pub use stats::stats;
pub use sweep::sweep;
pub use system_clock::OnSystemClock;
pub use timeline::timeline;
pub use waiters::waiters;
