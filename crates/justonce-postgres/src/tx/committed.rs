//! Completions that were committed with the caller's own writes.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use justonce_core::{Fence, RecordId};

/// The most that are remembered. Each is taken at once, by the engine that runs the handler; one
/// more than this and something else is wrong.
const MAX_REMEMBERED: usize = 4096;

/// Completions that are committed already: the engine's own complete has nothing left to do.
#[derive(Debug, Default)]
pub(crate) struct Committed(Mutex<HashSet<(RecordId, Fence)>>);

impl Committed {
    pub(crate) fn remember(&self, id: RecordId, fence: Fence) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a place here the engine asks the database, which says the same.
        if kept.len() < MAX_REMEMBERED {
            kept.insert((id, fence));
        }
    }

    pub(crate) fn take(&self, id: &RecordId, fence: Fence) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(*id, fence))
    }
}
