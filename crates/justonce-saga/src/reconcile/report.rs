//! What came of a reconciliation.

use std::error::Error;
use std::fmt;

use justonce_core::StoreError;

use super::effects::BoxError;

/// What was done about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing: somebody must look at it.
    Reported,
    /// The unknown operation is completed, with the outcome that was made from its effect.
    Completed,
    /// The unknown operation is released.
    Released,
    /// It was repaired by [`Effects::repair`](super::Effects::repair), which says this.
    Repaired(String),
    /// It may only be released later.
    TooEarly,
    /// Somebody else resolved it at the same moment; nothing was changed.
    Lost,
    /// The repair failed. The next run finds the same again.
    Failed(String),
}

/// What a reconciliation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReconcileReport {
    /// Records that were compared.
    pub records: u64,
    /// Effects that were compared.
    pub effects: u64,
    /// Disagreements that were found, whatever was done about them.
    pub found: u64,
    /// Those that were gone when they were looked at again: they ended meanwhile.
    pub gone: u64,
    /// Those that were repaired: completed, released, or by the books' own repair.
    pub repaired: u64,
    /// Those whose repair failed.
    pub failed: u64,
}

impl ReconcileReport {
    /// Adds the figures of another page.
    pub const fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.effects += other.effects;
        self.found += other.found;
        self.gone += other.gone;
        self.repaired += other.repaired;
        self.failed += other.failed;
    }

    pub(super) const fn count(&mut self, remedy: &Remedy) {
        self.found += 1;
        match remedy {
            Remedy::Completed | Remedy::Released | Remedy::Repaired(_) => self.repaired += 1,
            Remedy::Failed(_) => self.failed += 1,
            Remedy::Reported | Remedy::TooEarly | Remedy::Lost => {}
        }
    }
}

/// Why a reconciliation could not go on. What was repaired before stays so.
#[derive(Debug)]
pub enum ReconcileError {
    /// The store failed.
    Store(StoreError),
    /// The books could not be read.
    Effects(BoxError),
    /// The books ended two pages at this same place, so that they would never end.
    Circle(String),
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store could not be read: {error}"),
            Self::Effects(error) => write!(f, "the effects could not be listed: {error}"),
            Self::Circle(place) => write!(f, "two pages of effects end at the same place: {place}"),
        }
    }
}

impl Error for ReconcileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Effects(error) => Some(error.as_ref()),
            Self::Circle(_) => None,
        }
    }
}

impl From<StoreError> for ReconcileError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
