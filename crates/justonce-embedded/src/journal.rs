//! The log of batches: one row each. It names what the batch left unsettled, so that a store that
//! opens finds it among millions of records, and it proves that no batch is missing.

use std::collections::BTreeSet;

use justonce_core::store::{StateStats, Stats};
use justonce_core::{RecordId, StoreError, StoreErrorKind, StoreResult, Timestamp};

/// How many rows are kept. The journals hold fewer batches than this, so a gap that recovery may
/// leave always lies within the rows.
pub(crate) const KEEP_ROWS: u64 = 262_144;

/// Every how many batches a row names everything unsettled: an opening store reads no more rows
/// than these for it.
pub(crate) const NAME_ALL_EVERY: u64 = 4096;

const WORDS: usize = 12;
/// What rows had before released records were settled: they did not count those.
const WORDS_WITHOUT_RELEASED: usize = 10;
/// What rows had before there was a write-ahead log.
const WORDS_WITHOUT_LOG: usize = 9;

/// What a batch says about the whole store as it leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchRow {
    /// The store's time: after a restart, time does not go back behind it.
    pub(crate) now: Timestamp,
    /// No fence below this one may be given after a restart.
    pub(crate) fences_reserved: u64,
    /// How many settled records there are.
    pub(crate) done: Stats,
    /// The records that the batch left unsettled, or all that are.
    pub(crate) unsettled: Vec<RecordId>,
    /// Whether it names all that are unsettled.
    pub(crate) names_all: bool,
    /// The last batch of the write-ahead log that is in it.
    pub(crate) logged: u64,
}

impl BatchRow {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Stats { completed, failed, released, tombstone, .. } = self.done;
        let words: [u64; WORDS] = [
            self.now.as_millis(),
            self.fences_reserved,
            completed.count,
            completed.bytes,
            failed.count,
            failed.bytes,
            tombstone.count,
            tombstone.bytes,
            u64::from(self.names_all),
            self.logged,
            released.count,
            released.bytes,
        ];
        let mut bytes = Vec::with_capacity(8 * WORDS + 32 * self.unsettled.len());
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        self.unsettled.iter().for_each(|id| bytes.extend_from_slice(id.as_bytes()));
        bytes
    }

    /// Reads a row. One from before the write-ahead log was its own only batch.
    pub(crate) fn from_bytes(number: u64, bytes: &[u8]) -> Option<Self> {
        let forms = [WORDS, WORDS_WITHOUT_RELEASED, WORDS_WITHOUT_LOG];
        // Names have 32 bytes, so the length tells the form.
        let form = forms.into_iter().find(|words| bytes.len() % 32 == 8 * words % 32)?;
        let (words, ids) = bytes.split_at_checked(8 * form)?;
        let mut words = words.as_chunks::<8>().0.iter().copied().map(u64::from_le_bytes);
        let mut word = || words.next();
        let (now, fences_reserved) = (Timestamp::from_millis(word()?), word()?);
        let mut stats = || Some(StateStats { count: word()?, bytes: word()? });
        let (completed, failed, tombstone) = (stats()?, stats()?, stats()?);
        let names_all = words.next()? == 1;
        let logged = words.next().unwrap_or(number);
        let (count, bytes) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        let released = StateStats { count, bytes };
        let done = Stats { completed, failed, released, tombstone, ..Stats::default() };
        let (ids, rest) = ids.as_chunks::<32>();
        let unsettled = ids.iter().map(|id| RecordId::from_bytes(*id)).collect();
        let row = Self { now, fences_reserved, done, unsettled, names_all, logged };
        rest.is_empty().then_some(row)
    }
}

/// What the log says about the store.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The number of the last batch.
    pub(crate) number: u64,
    /// Its row.
    pub(crate) row: BatchRow,
    /// Every record that may be unsettled.
    pub(crate) unsettled: BTreeSet<RecordId>,
}

/// Reads the log, if no batch is missing between others.
///
/// # Errors
///
/// If recovery has dropped batches that were acknowledged.
pub(crate) fn recover(
    rows: impl Iterator<Item = StoreResult<(u64, BatchRow)>>,
) -> StoreResult<Recovered> {
    let mut found = Recovered::default();
    for row in rows {
        let (number, row) = row?;
        if found.number != 0 && number != found.number + 1 {
            return Err(missing(found.number + 1, number - 1));
        }
        if row.names_all {
            found.unsettled.clear();
        }
        found.unsettled.extend(&row.unsettled);
        found.number = number;
        found.row = row;
    }
    Ok(found)
}

/// Batches that were acknowledged are gone.
pub(crate) fn missing(from: u64, to: u64) -> StoreError {
    let message = format!(
        "batches {from} to {to} are missing: a file of wal/ or a journal of records/ (*.jnl) is \
         lost or damaged, and operations that were acknowledged are not there. Restore the file \
         if it was moved or its owner changed; else restore the whole directory from one backup"
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
            BatchRow { now: Timestamp::from_millis(1), fences_reserved: 2, ..BatchRow::default() };
        row.unsettled.push(RecordId::from_bytes([7; 32]));
        row.names_all = true;
        row.logged = 9;
        row.done.tombstone = StateStats { count: 3, bytes: 4 };
        row.done.released = StateStats { count: 5, bytes: 6 };
        assert_eq!(BatchRow::from_bytes(5, &row.to_bytes()).as_ref(), Some(&row));
        assert_eq!(BatchRow::from_bytes(5, &row.to_bytes()[1..]), None);
    }

    #[test]
    fn a_row_from_before_the_write_ahead_log_is_its_own_batch() {
        let mut row = BatchRow { logged: 5, ..BatchRow::default() };
        row.unsettled.extend([RecordId::from_bytes([7; 32]), RecordId::from_bytes([8; 32])]);
        let mut bytes = row.to_bytes();
        bytes.drain(8 * WORDS_WITHOUT_LOG..8 * WORDS);
        assert_eq!(BatchRow::from_bytes(5, &bytes), Some(row));
    }

    #[test]
    fn a_row_that_does_not_count_released_records_reads_back() {
        let mut row = BatchRow { logged: 9, names_all: true, ..BatchRow::default() };
        row.unsettled.extend([RecordId::from_bytes([7; 32]), RecordId::from_bytes([8; 32])]);
        row.done.failed = StateStats { count: 3, bytes: 4 };
        let mut bytes = row.to_bytes();
        bytes.drain(8 * WORDS_WITHOUT_RELEASED..8 * WORDS);
        assert_eq!(BatchRow::from_bytes(5, &bytes), Some(row));
    }

    #[test]
    fn a_row_that_names_all_makes_earlier_ones_moot() {
        let id = |n| RecordId::from_bytes([n; 32]);
        let row =
            |n, names_all| BatchRow { unsettled: vec![id(n)], names_all, ..Default::default() };
        let rows = [(1, row(1, false)), (2, row(2, true)), (3, row(3, false))];
        let found = recover(rows.into_iter().map(Ok)).unwrap();
        assert_eq!(found.unsettled.into_iter().collect::<Vec<_>>(), [id(2), id(3)]);
    }

    #[test]
    fn missing_batches_are_noticed() {
        assert_eq!(recover(rows(&[])).unwrap().number, 0);
        assert_eq!(recover(rows(&[5, 6, 7])).unwrap().number, 7);
        let gap = recover(rows(&[5, 7])).unwrap_err().to_string();
        assert!(gap.contains("batches 6 to 6"), "{gap}");
    }
}
