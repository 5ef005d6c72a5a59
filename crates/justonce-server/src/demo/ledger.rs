//! What the toy API charged: a file with one line per charge, to be counted by whoever doubts.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Charge {
    /// The API's own name for the charge, new for each.
    pub(super) id: String,
    /// The key that came with the request. The API does not look at it: that is the point.
    pub(super) key: String,
    pub(super) amount: u64,
    pub(super) to: String,
}

/// The open file.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<Pen>);

#[derive(Debug)]
struct Pen {
    file: File,
    written: u64,
}

impl Ledger {
    /// A new ledger.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path)?;
        Ok(Self(Mutex::new(Pen { file, written: 0 })))
    }

    /// Charges, and says how.
    pub(super) fn charge(&self, key: &str, amount: u64, to: &str) -> io::Result<Charge> {
        let mut pen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("ch_{:06}", pen.written + 1);
        let charge = Charge { id, key: key.to_owned(), amount, to: to.to_owned() };
        let mut line = serde_json::to_vec(&charge)?;
        line.push(b'\n');
        pen.file.write_all(&line)?;
        pen.written += 1;
        Ok(charge)
    }
}

/// How often each key was charged, read from the file.
pub(super) fn charges_by_key(path: &Path) -> Result<BTreeMap<String, u64>> {
    let text = fs::read_to_string(path).context("the ledger cannot be read")?;
    let mut charges = BTreeMap::new();
    for line in text.lines() {
        let charge: Charge =
            serde_json::from_str(line).context("a line of the ledger is damaged")?;
        *charges.entry(charge.key).or_default() += 1;
    }
    Ok(charges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_charge_is_a_line_that_can_be_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        let ledger = Ledger::create(&path).unwrap();
        assert_eq!(charges_by_key(&path).unwrap(), BTreeMap::new());
        let first = ledger.charge("a", 1, "alice").unwrap();
        let second = ledger.charge("a", 2, "two\nlines").unwrap();
        assert_ne!(first.id, second.id);
        ledger.charge("b", 3, "bob").unwrap();
        let counted = charges_by_key(&path).unwrap();
        assert_eq!(counted, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
    }

    #[test]
    fn a_damaged_ledger_is_not_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        fs::write(&path, "{\"id\":\n").unwrap();
        assert!(charges_by_key(&path).is_err());
    }
}
