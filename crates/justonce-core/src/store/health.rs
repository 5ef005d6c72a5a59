//! What operators should know about a store that works: damaged records and warnings.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::record_id::RecordId;

/// How many damaged records a [`DamageLog`] remembers: they are counted exactly up to here.
pub const MAX_DAMAGED_REMEMBERED: usize = 10_000;
/// How many damaged records [`DamagedRecords`] names: enough to begin with, short enough to show.
pub const MAX_DAMAGED_NAMED: usize = 20;

/// What operators should know about a store, also while it can take every step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Records that could not be read.
    pub damaged: DamagedRecords,
    /// What else is wrong.
    pub warnings: Vec<HealthWarning>,
    /// How much is used of what the store bounds: at a bound it refuses new operations.
    pub bounds: Vec<BoundUse>,
}

impl Health {
    /// Whether there is nothing to tell.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.damaged.count == 0 && self.warnings.is_empty()
    }
}

/// Records that could not be read since the store was opened. Sweeps and lists skip them; a step on
/// one fails with [`StoreErrorKind::Damaged`](crate::StoreErrorKind::Damaged).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedRecords {
    /// How many are known, up to [`MAX_DAMAGED_REMEMBERED`].
    pub count: u64,
    /// The first of them in the order of their names, at most [`MAX_DAMAGED_NAMED`].
    pub named: Vec<RecordId>,
}

/// How much is used of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundUse {
    /// A name for metrics and alerts: lower case, with underscores. It does not change.
    pub name: &'static str,
    /// How much is used now.
    pub used: u64,
    /// The bound.
    pub limit: u64,
}

/// Something that an operator should look at. It stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthWarning {
    /// A name for metrics and alerts: lower case, with hyphens. It does not change.
    pub name: &'static str,
    /// What is wrong, and what to do about it.
    pub message: String,
}

/// Remembers which records a store could not read, each once.
///
/// ```
/// use justonce_core::store::DamageLog;
/// use justonce_core::RecordId;
///
/// let log = DamageLog::default();
/// let id = RecordId::from_bytes([7; 32]);
/// assert!(log.note(id), "it is new");
/// assert!(!log.note(id), "a sweep that comes by again counts nothing");
/// assert_eq!(log.damaged().named, [id]);
/// log.forget(&id);
/// assert_eq!(log.damaged().count, 0);
/// ```
#[derive(Debug, Default)]
pub struct DamageLog(Mutex<BTreeSet<RecordId>>);

impl DamageLog {
    /// A record could not be read. Returns whether that was not known before.
    pub fn note(&self, id: RecordId) -> bool {
        let mut ids = self.ids();
        ids.len() < MAX_DAMAGED_REMEMBERED && ids.insert(id)
    }

    /// Whether a record is known to be damaged.
    #[must_use]
    pub fn contains(&self, id: &RecordId) -> bool {
        self.ids().contains(id)
    }

    /// A record can be read again, or is gone.
    pub fn forget(&self, id: &RecordId) {
        self.ids().remove(id);
    }

    /// What is known.
    #[must_use]
    pub fn damaged(&self) -> DamagedRecords {
        let ids = self.ids();
        DamagedRecords {
            count: ids.len() as u64,
            named: ids.iter().take(MAX_DAMAGED_NAMED).copied().collect(),
        }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<RecordId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_and_named_is_bounded() {
        let log = DamageLog::default();
        for number in 0..u32::try_from(MAX_DAMAGED_REMEMBERED).unwrap() + 5 {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            log.note(RecordId::from_bytes(bytes));
        }
        let damaged = log.damaged();
        assert_eq!(damaged.count, MAX_DAMAGED_REMEMBERED as u64);
        assert_eq!(damaged.named.len(), MAX_DAMAGED_NAMED);
        assert!(damaged.named.is_sorted());
    }
}
