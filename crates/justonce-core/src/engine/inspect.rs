//! One record as it is now, for those who look after the store.

use std::time::Duration;

use super::builder::Engine;
use crate::error::StoreResult;
use crate::protocol::{Action, Answer, BusyWhy, Entry, Existing, StateName, Step};
use crate::record_id::RecordId;
use crate::scope::Scope;
use crate::store::{ListQuery, Stored};

/// A record, and what a duplicate of its operation would get now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// What is stored.
    pub stored: Stored,
    /// What a duplicate would get; nothing if it would be claimed. Nothing for tombstones.
    pub existing: Option<Existing>,
}

impl Inspected {
    /// The state at the present time of the store. A claim that lapsed under `hold` is unknown,
    /// also before anybody has written that down.
    #[must_use]
    pub fn state(&self) -> StateName {
        match (&self.existing, &self.stored.entry) {
            (Some(Existing::Unknown(_)), _) => StateName::Unknown,
            (Some(Existing::Completed(_)), _) => StateName::Completed,
            (Some(Existing::Failed(_)), _) => StateName::Failed,
            (Some(Existing::Expired(_)), _) => StateName::Tombstone,
            (Some(Existing::Busy(busy)), _) => match busy.why {
                BusyWhy::Running => StateName::InProgress,
                BusyWhy::BackOff => StateName::Failed,
            },
            (Some(Existing::Mismatch) | None, entry) => entry.state_name(),
        }
    }
}

impl Engine {
    /// Inspects one record: what is stored, and what it means at the present time.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn inspect(&self, id: RecordId) -> StoreResult<Option<Inspected>> {
        let Some(stored) = self.inner.store.get(&id).await? else { return Ok(None) };
        let Entry::Record(record) = &stored.entry else {
            return Ok(Some(Inspected { stored, existing: None }));
        };
        // Asked with its own fingerprint, so that nothing can mismatch.
        let peek = Step::new(id, Action::Peek(record.subject.fingerprint));
        let existing = match self.inner.store.apply(&peek).await? {
            Answer::Existing(existing) => Some(existing),
            _ => None,
        };
        Ok(Some(Inspected { stored, existing }))
    }

    /// Whether an operation has been unknown for this long, by the clock of the store. A claim
    /// whose lapse is not written down yet has not: its record does not say since when it
    /// lapsed. It is written down now, and its time counts from here, so that it passes also where
    /// no sweep runs.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn is_unknown_for(
        &self,
        id: RecordId,
        scope: Scope,
        time: Duration,
    ) -> StoreResult<bool> {
        if time.is_zero() {
            return Ok(true);
        }
        match self.inner.store.get(&id).await?.map(|stored| stored.entry.state_name()) {
            Some(StateName::Unknown) => {}
            Some(StateName::InProgress) => {
                // Changes nothing while the lease lasts.
                self.inner.store.apply(&Step::new(id, Action::Sweep)).await?;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        let query = ListQuery {
            state: Some(StateName::Unknown),
            scope: Some(scope),
            unchanged_for: Some(time),
            only: Some(id),
            ..ListQuery::default()
        };
        let page = self.inner.store.list(&query).await?;
        Ok(!page.records.is_empty())
    }
}
