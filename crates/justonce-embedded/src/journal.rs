//! The log of batches: one row each, so that a missing batch is noticed when the store opens.

use justonce_core::store::{StateStats, Stats};
use justonce_core::{StoreError, StoreErrorKind, StoreResult, Timestamp};

/// How many rows are kept. The journals hold fewer batches than this, so a gap that recovery may
/// leave always lies within the rows.
pub(crate) const KEEP_ROWS: u64 = 262_144;

const WORDS: usize = 8;

/// What a batch says about the whole store as it leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchRow {
    /// The store's time: after a restart, time does not go back behind it.
    pub(crate) now: Timestamp,
    /// No fence below this one may be given after a restart.
    pub(crate) fences_reserved: u64,
    /// What the keyspace `done` holds.
    pub(crate) done: Stats,
}

impl BatchRow {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let Stats { completed, failed, tombstone, .. } = self.done;
        let words: [u64; WORDS] = [
            self.now.as_millis(),
            self.fences_reserved,
            completed.count,
            completed.bytes,
            failed.count,
            failed.bytes,
            tombstone.count,
            tombstone.bytes,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: &[[u8; 8]; WORDS] = words.try_into().ok().filter(|_| rest.is_empty())?;
        let [now, fences_reserved, cc, cb, fc, fb, tc, tb] = words.map(u64::from_le_bytes);
        let done = Stats {
            completed: StateStats { count: cc, bytes: cb },
            failed: StateStats { count: fc, bytes: fb },
            tombstone: StateStats { count: tc, bytes: tb },
            ..Stats::default()
        };
        Some(Self { now: Timestamp::from_millis(now), fences_reserved, done })
    }
}

/// The last batch, if no batch before it is missing.
///
/// # Errors
///
/// If recovery has dropped batches that were acknowledged.
pub(crate) fn verify(
    rows: impl Iterator<Item = StoreResult<(u64, BatchRow)>>,
    watermark: u64,
) -> StoreResult<(u64, BatchRow)> {
    let mut last: Option<(u64, BatchRow)> = None;
    for row in rows {
        let (number, row) = row?;
        if let Some((before, _)) = last
            && number != before + 1
        {
            return Err(missing(before + 1, number - 1));
        }
        last = Some((number, row));
    }
    let (number, row) = last.unwrap_or_default();
    if number < watermark {
        return Err(missing(number + 1, watermark));
    }
    Ok((number, row))
}

fn missing(from: u64, to: u64) -> StoreError {
    let message = format!(
        "batches {from} to {to} are missing: a journal file was damaged, and operations that were \
         acknowledged are lost. Restore the directory from a backup"
    );
    StoreError::not_applied(StoreErrorKind::Damaged, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(numbers: &[u64]) -> impl Iterator<Item = StoreResult<(u64, BatchRow)>> {
        numbers.iter().map(|n| Ok((*n, BatchRow::default())))
    }

    #[test]
    fn a_row_reads_back() {
        let mut row =
            BatchRow { now: Timestamp::from_millis(1), fences_reserved: 2, done: Stats::default() };
        row.done.tombstone = StateStats { count: 3, bytes: 4 };
        assert_eq!(BatchRow::from_bytes(&row.to_bytes()), Some(row));
        assert_eq!(BatchRow::from_bytes(&row.to_bytes()[1..]), None);
    }

    #[test]
    fn missing_batches_are_noticed() {
        assert_eq!(verify(rows(&[]), 0).unwrap().0, 0);
        assert_eq!(verify(rows(&[5, 6, 7]), 7).unwrap().0, 7);
        assert_eq!(verify(rows(&[5, 6, 7]), 3).unwrap().0, 7);
        let gap = verify(rows(&[5, 7]), 0).unwrap_err().to_string();
        assert!(gap.contains("batches 6 to 6"), "{gap}");
        let tail = verify(rows(&[5, 6]), 9).unwrap_err().to_string();
        assert!(tail.contains("batches 7 to 9"), "{tail}");
    }
}
