//! What came of asking.

use crate::error::StoreError;
use crate::protocol::{HowResolved, Lost};

/// What became of one question.
#[derive(Debug)]
pub enum ProbeEnd {
    /// The operation is resolved.
    Resolved(HowResolved),
    /// Nothing certain was heard. It is asked again later.
    Unclear,
    /// It did not happen so far. Whether it never will is not certain yet: it is asked again later.
    TooEarly,
    /// The probe took too long, or panicked. It is asked again later.
    NoAnswer,
    /// Another resolution came first: nothing was changed.
    Lost(Lost),
    /// The store failed. If the operation is still unknown, it is asked again later.
    Store(StoreError),
}

/// What one round of asking did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// How many unknown operations were found.
    pub found: usize,
    /// About how many the downstream was asked; the others wait for their time.
    pub asked: usize,
    /// How many were resolved.
    pub resolved: usize,
    /// How many others had resolved meanwhile.
    pub lost: usize,
    /// How many could not be read or resolved because the store failed.
    pub failed: usize,
    /// Whether there are more records than this round looked at.
    pub more: bool,
}

impl ProbeReport {
    pub(super) const fn count(&mut self, end: &ProbeEnd) {
        match end {
            ProbeEnd::Resolved(_) => self.resolved += 1,
            ProbeEnd::Unclear | ProbeEnd::TooEarly | ProbeEnd::NoAnswer => {}
            ProbeEnd::Lost(_) => self.lost += 1,
            ProbeEnd::Store(_) => self.failed += 1,
        }
    }
}
