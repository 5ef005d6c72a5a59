//! Completions that were committed with the caller's own writes.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use justonce_core::{Fence, RecordId};

/// The limit of remembered completions. The engine that runs the handler takes each at once.
const MAX_REMEMBERED: usize = 4096;

/// Completions that are committed already: the engine's own complete finds them here.
#[derive(Debug, Default)]
pub(crate) struct Committed(Mutex<HashSet<(RecordId, Fence)>>);

impl Committed {
    pub(crate) fn remember(&self, id: RecordId, fence: Fence) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is not remembered here is found in the database.
        if kept.len() < MAX_REMEMBERED {
            kept.insert((id, fence));
        }
    }

    pub(crate) fn take(&self, id: &RecordId, fence: Fence) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(*id, fence))
    }
}
