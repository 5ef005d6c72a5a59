//! What came of a reconciliation.

use justonce_core::StoreError;
use thiserror::Error;

use super::effects::BoxError;

/// What was done about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Nothing: an operator must look at it.
    Reported,
    /// The unknown operation is completed, with the outcome that was made from its effect.
    Completed,
    /// The unknown operation is released.
    Released,
    /// It was repaired by [`Effects::repair`](super::Effects::repair), which says this.
    Repaired(String),
    /// It may only be released later.
    TooEarly,
    /// Another resolution came at the same moment; nothing was changed.
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
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// The store failed.
    #[error("the store could not be read: {0}")]
    Store(#[from] StoreError),
    /// The books could not be read.
    #[error("the effects could not be listed: {0}")]
    Effects(#[source] BoxError),
    /// The books ended two pages at this same place, so that they would never end.
    #[error("two pages of effects end at the same place: {0}")]
    Circle(String),
}
