//! The names of what is in memory, in order: a page of a list finds its records without looking at
//! all of them.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use justonce_core::RecordId;

/// How many ranges the names are split into, each with a lock: callers rarely meet in one.
const RANGES: usize = 256;

/// Names in order. The table's shards do not have them in order: they are told apart by the last
/// byte of a name, these ranges by the first.
#[derive(Debug)]
pub(crate) struct LiveOrder(Box<[Mutex<BTreeSet<RecordId>>]>);

impl Default for LiveOrder {
    fn default() -> Self {
        Self((0..RANGES).map(|_| Mutex::default()).collect())
    }
}

impl LiveOrder {
    pub(crate) fn insert(&self, id: RecordId) {
        if let Some(range) = self.0.get(range_of(&id)) {
            lock(range).insert(id);
        }
    }

    pub(crate) fn remove(&self, id: &RecordId) {
        if let Some(range) = self.0.get(range_of(id)) {
            lock(range).remove(id);
        }
    }

    /// The first names behind `after`, at most so many; fewer only if there are no more.
    pub(crate) fn behind(&self, after: Option<RecordId>, count: usize) -> Vec<RecordId> {
        let mut names = Vec::new();
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        for range in self.0.iter().skip(after.as_ref().map_or(0, range_of)) {
            let left = count - names.len();
            if left == 0 {
                break;
            }
            names.extend(lock(range).range((start, Bound::Unbounded)).take(left));
        }
        names
    }
}

fn range_of(id: &RecordId) -> usize {
    let [first, ..] = id.as_bytes();
    usize::from(*first)
}

fn lock(range: &Mutex<BTreeSet<RecordId>>) -> MutexGuard<'_, BTreeSet<RecordId>> {
    range.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_order_over_the_ranges() {
        let order = LiveOrder::default();
        let ids: Vec<RecordId> = (0..1000_u16)
            .map(|n| {
                let mut bytes = [0; 32];
                bytes[..2].copy_from_slice(&n.wrapping_mul(65).to_be_bytes());
                RecordId::from_bytes(bytes)
            })
            .collect();
        ids.iter().for_each(|id| order.insert(*id));
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut walked, mut after) = (Vec::new(), None);
        loop {
            let page = order.behind(after, 7);
            after = page.last().copied();
            walked.extend(page.iter().copied());
            if page.len() < 7 {
                break;
            }
        }
        assert_eq!(walked, sorted);
        ids.iter().for_each(|id| order.remove(id));
        assert!(order.behind(None, 7).is_empty());
    }
}
