//! Rows that the storage engine does not have yet.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::name::RowName;
use super::writes::RowWrite;
use crate::commit::Ticket;

/// The rows on their way to the engine, by name.
#[derive(Debug, Default)]
pub(crate) struct PendingRows(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    rows: BTreeMap<RowName, PendingRow>,
    changes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PendingRow {
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) ticket: Ticket,
    change: u64,
}

impl PendingRows {
    pub(crate) fn get(&self, row: &RowName) -> Option<PendingRow> {
        self.pending().rows.get(row).cloned()
    }

    /// Keeps rows from the moment they are queued. Nobody lets go of them before they are kept.
    pub(crate) fn queue<E>(
        &self,
        rows: Vec<RowWrite>,
        enqueue: impl FnOnce(Vec<RowWrite>, u64) -> Result<Ticket, E>,
    ) -> Result<Ticket, E> {
        let mut pending = self.pending();
        pending.changes += 1;
        let change = pending.changes;
        let kept: Vec<_> = rows.iter().map(|row| (row.name.clone(), row.value.clone())).collect();
        let ticket = enqueue(rows, change)?;
        for (name, value) in kept {
            pending.rows.insert(name, PendingRow { value, ticket: ticket.clone(), change });
        }
        Ok(ticket)
    }

    /// Lets go of rows that the engine has, unless they were written anew.
    pub(crate) fn let_go(&self, rows: &[RowWrite], change: u64) {
        if rows.is_empty() {
            return;
        }
        let mut pending = self.pending();
        for RowWrite { name, .. } in rows {
            if pending.rows.get(name).is_some_and(|kept| kept.change == change) {
                pending.rows.remove(name);
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
