//! What the toy API charged: a file with one line per charge.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Charge {
    /// The API's own name for the charge, new for each.
    pub(crate) id: String,
    /// The key of the request. The API itself ignores it.
    pub(crate) key: String,
    pub(crate) amount: u64,
    pub(crate) to: String,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Ledger(Mutex<Open>);

#[derive(Debug)]
struct Open {
    file: File,
    written: u64,
}

impl Ledger {
    /// A new ledger.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path)?;
        Ok(Self(Mutex::new(Open { file, written: 0 })))
    }

    /// Adds a charge.
    pub(crate) fn charge(&self, key: &str, amount: u64, to: &str) -> io::Result<Charge> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("ch_{:06}", open.written + 1);
        let charge = Charge { id, key: key.to_owned(), amount, to: to.to_owned() };
        let mut line = serde_json::to_vec(&charge)?;
        line.push(b'\n');
        open.file.write_all(&line)?;
        open.written += 1;
        Ok(charge)
    }
}

/// How often each key was charged, read from the file.
pub(crate) fn charges_by_key(path: &Path) -> Result<BTreeMap<String, u64>> {
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
