//! A ledger: one line an effect, on disk before anybody hears of it.
//!
//! It knows nothing of repetitions: whoever asks twice is booked twice. That the same key is not
//! booked twice is the work of the layer in front of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One line of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The number of the line, from 1.
    pub entry: u64,
    /// What happened.
    pub effect: Effect,
    /// The order it happened for.
    pub order: String,
    /// The key under which it was asked for.
    pub key: String,
    /// The key of what was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It was done.
    Done,
    /// It was undone.
    Undone,
    /// It was to be undone, and had not been done: it must not be done from now on.
    Void,
}

/// A ledger that is open for writing.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    lines: Vec<Line>,
}

impl Ledger {
    /// Opens a ledger, or begins one. A last line that was not written whole is cut off: nobody
    /// has heard of it.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is no ledger.
    pub fn open(path: &Path) -> io::Result<Self> {
        let options = &mut OpenOptions::new();
        let file = options.create(true).append(true).read(true).open(path)?;
        let text = std::fs::read_to_string(path)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(u64::try_from(whole).unwrap_or(u64::MAX))?;
        Ok(Self { file, lines: read(path)? })
    }

    /// Books an effect, unless it was undone before it came.
    ///
    /// # Errors
    ///
    /// If the line cannot be written.
    pub fn book(&mut self, order: &str, key: &str) -> io::Result<Option<u64>> {
        let is_void = |line: &Line| line.undoes.as_deref() == Some(key);
        if self.lines.iter().any(is_void) {
            return Ok(None);
        }
        self.write(Effect::Done, order, key, None).map(Some)
    }

    /// Undoes what was booked under a key. If nothing was, it is kept from being booked later.
    ///
    /// # Errors
    ///
    /// If the line cannot be written.
    pub fn undo(&mut self, order: &str, key: &str, undoes: &str) -> io::Result<u64> {
        let is_it = |line: &Line| line.key == undoes && line.effect == Effect::Done;
        let effect = if self.lines.iter().any(is_it) { Effect::Undone } else { Effect::Void };
        self.write(effect, order, key, Some(undoes))
    }

    fn write(
        &mut self,
        effect: Effect,
        order: &str,
        key: &str,
        undoes: Option<&str>,
    ) -> io::Result<u64> {
        let entry = u64::try_from(self.lines.len()).unwrap_or(u64::MAX).saturating_add(1);
        let (order, key, undoes) = (order.to_owned(), key.to_owned(), undoes.map(str::to_owned));
        let line = Line { entry, effect, order, key, undoes };
        let text = format!("{}\n", serde_json::to_string(&line)?);
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        self.lines.push(line);
        Ok(entry)
    }
}

/// The lines of a ledger that somebody else may be writing.
///
/// # Errors
///
/// If the file cannot be read, or is no ledger.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_is_as_if_it_had_never_been() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.book("o", "k-1").unwrap(), Some(1));
        ledger.file.write_all(b"{\"entry\":2,").unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.book("o", "k-2").unwrap(), Some(2));
        assert_eq!(read(&path).unwrap().len(), 2);
    }

    #[test]
    fn what_was_undone_before_it_came_does_not_happen() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(&directory.path().join("ledger")).unwrap();
        assert_eq!(ledger.undo("o", "undo", "do").unwrap(), 1);
        assert_eq!(ledger.lines[0].effect, Effect::Void);
        assert_eq!(ledger.book("o", "do").unwrap(), None);
    }
}
