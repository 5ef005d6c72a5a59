//! One conformance suite for all stores, generated from the pure function.

mod act;
mod backend;
mod cases;
mod chapter;
mod coverage;
mod deviation;
mod every_case;
mod oracle;
mod run;
mod runner;
mod scripts;
mod setting;
mod tolerance;

pub use backend::{Backend, OnManualClock, Survival};
pub use chapter::run;
pub use deviation::{Deviation, Verdict};
pub use every_case::every_case;
