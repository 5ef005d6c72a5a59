//! What is saved of the phases: their names, the input, and the results so far. Pure.

use bytes::Bytes;
use justonce_core::Checkpoint;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::{PhasesError, ShapeChanged};
use crate::saved::{cut, is_zero, most_after};

/// The version in which journals are written.
const VERSION: u32 = 1;
/// The name of the checkpoint before the first phase.
const ASKED: &str = "asked";

/// What is saved of the phases of one operation, as JSON: the names of the release that wrote it,
/// the input, and the results so far, in order. It is the data of the claim's one checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    phases: Vec<String>,
    input: Option<Box<RawValue>>,
    results: Vec<Box<RawValue>>,
    /// The attempt that brought the phases on last.
    #[serde(default, skip_serializing_if = "is_zero")]
    progressed: u32,
    /// Why they do not go on before a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parked: Option<String>,
}

impl Journal {
    /// The journal of an operation before its first phase.
    #[must_use]
    pub fn new(phases: &[String]) -> Self {
        let phases = phases.to_vec();
        let (input, results, progressed, parked) = Default::default();
        Self { version: VERSION, phases, input, results, progressed, parked }
    }

    /// The same with what was asked.
    ///
    /// # Errors
    ///
    /// If the input cannot be written as JSON.
    pub fn asked<T: Serialize>(mut self, input: &T) -> Result<Self, PhasesError> {
        self.input = Some(raw(input).map_err(|why| unsavable(ASKED, why))?);
        Ok(self)
    }

    /// Reads a checkpoint for the phases that are declared now.
    ///
    /// What is done, and the one phase that may have been begun, must have kept their names and
    /// their order. What comes after them may have changed.
    ///
    /// # Errors
    ///
    /// If it is not a journal, or the phases have changed.
    pub fn read(point: &Checkpoint, declared: &[String]) -> Result<Self, PhasesError> {
        let saved = Self::saved(point)?;
        let begun = saved.results.len() + 1;
        let same = saved.phases.iter().take(begun).eq(declared.iter().take(begun));
        if !same || saved.results.len() > declared.len() {
            return Err(PhasesError::Shape(Box::new(ShapeChanged {
                done: saved.results.len(),
                saved: saved.phases,
                declared: declared.to_vec(),
            })));
        }
        Ok(Self { phases: declared.to_vec(), ..saved })
    }

    /// Reads a checkpoint, whatever phases are declared.
    pub(crate) fn saved(point: &Checkpoint) -> Result<Self, PhasesError> {
        let unreadable = |why: String| PhasesError::Unreadable { phase: None, why };
        let saved: Self =
            serde_json::from_slice(point.data()).map_err(|error| unreadable(error.to_string()))?;
        if saved.version != VERSION {
            let version = saved.version;
            return Err(unreadable(format!("it has version {version}, and {VERSION} is known")));
        }
        Ok(saved)
    }

    /// Why the phases do not go on before a retry; nothing while they may be gone on with.
    #[must_use]
    pub fn parked(&self) -> Option<&str> {
        self.parked.as_deref()
    }

    /// The attempt that brought the phases on last: one was done, or they were retried. Each claim
    /// since then was a drive that failed.
    #[must_use]
    pub const fn progressed(&self) -> u32 {
        self.progressed
    }

    /// The same, parked.
    pub(crate) fn park(mut self, why: String) -> Self {
        self.parked = Some(cut(why));
        self
    }

    /// Why the phases of a checkpoint are parked.
    pub(crate) fn parked_in(point: &Checkpoint) -> Option<String> {
        Self::saved(point).ok()?.parked
    }

    /// Parked phases as a retry under this attempt saves them.
    pub(crate) fn unparked_data(point: &Checkpoint, attempt: u32) -> Result<Bytes, PhasesError> {
        let saved = Self::saved(point)?;
        Self { parked: None, progressed: attempt, ..saved }.data()
    }

    /// How many phases are done.
    #[must_use]
    pub const fn done(&self) -> usize {
        self.results.len()
    }

    /// A phase by its number.
    #[must_use]
    pub fn phase(&self, number: usize) -> Option<&str> {
        self.phases.get(number).map(String::as_str)
    }

    /// The phase that comes next.
    #[must_use]
    pub fn next(&self) -> Option<&str> {
        self.phase(self.results.len())
    }

    /// The input.
    ///
    /// # Errors
    ///
    /// If there is none, or it is of another type.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, PhasesError> {
        let unreadable = |why: String| PhasesError::Unreadable { phase: None, why };
        let raw = self.input.as_ref().ok_or_else(|| unreadable("there is no input".into()))?;
        serde_json::from_str(raw.get()).map_err(|error| unreadable(format!("input: {error}")))
    }

    /// The saved result of a phase by its number; nothing if it is not done.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn result<T: DeserializeOwned>(&self, number: usize) -> Result<Option<T>, PhasesError> {
        let Some(raw) = self.results.get(number) else { return Ok(None) };
        serde_json::from_str(raw.get()).map(Some).map_err(|error| PhasesError::Unreadable {
            phase: self.phases.get(number).cloned(),
            why: error.to_string(),
        })
    }

    /// The same with the result of the next phase, done by this attempt.
    ///
    /// # Errors
    ///
    /// If the result cannot be written as JSON.
    pub fn with<T: Serialize>(&self, result: &T, attempt: u32) -> Result<Self, PhasesError> {
        let mut journal = Self { progressed: attempt, ..self.clone() };
        let phase = self.next().unwrap_or_default();
        journal.results.push(raw(result).map_err(|why| unsavable(phase, why))?);
        Ok(journal)
    }

    /// The name of the checkpoint: the last phase that is done.
    #[must_use]
    pub fn name(&self) -> &str {
        let last = self.results.len().checked_sub(1);
        last.and_then(|last| self.phases.get(last)).map_or(ASKED, String::as_str)
    }

    /// The data of the checkpoint.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn data(&self) -> Result<Bytes, PhasesError> {
        let bytes = serde_json::to_vec(self).map_err(|error| unsavable(self.name(), error))?;
        Ok(bytes.into())
    }

    /// The data of the checkpoint, if there is room left for the reason of parking, after one
    /// that had so many bytes.
    pub(super) fn fitting_data(&self, before: usize) -> Result<Bytes, PhasesError> {
        let (data, most) = (self.data()?, most_after(before));
        if data.len() <= most {
            return Ok(data);
        }
        let why = format!(
            "what is saved of the phases has {} bytes with it, at most {most} are kept: \
             store large data elsewhere and keep its address",
            data.len()
        );
        Err(unsavable(self.name(), why))
    }
}

fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::value::to_raw_value(value)
}

pub(super) fn unsavable(phase: &str, why: impl std::fmt::Display) -> PhasesError {
    PhasesError::Unsavable { phase: phase.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn saved(done: u32) -> Checkpoint {
        let mut journal = Journal::new(&names(&["a", "b", "c"])).asked(&17).unwrap();
        for result in 0..done {
            journal = journal.with(&result, 1).unwrap();
        }
        Checkpoint::new(journal.name(), journal.data().unwrap()).unwrap()
    }

    #[test]
    fn what_was_saved_is_read_back() {
        let journal = Journal::read(&saved(2), &names(&["a", "b", "c"])).unwrap();
        assert_eq!((journal.done(), journal.next(), journal.name()), (2, Some("c"), "b"));
        assert_eq!(journal.input::<u32>().unwrap(), 17);
        assert_eq!(journal.result::<u32>(1).unwrap(), Some(1));
        assert_eq!(journal.result::<u32>(2).unwrap(), None);
        assert!(journal.result::<String>(0).is_err());
    }

    #[test]
    fn a_change_of_what_may_have_begun_is_refused() {
        for (done, declared, fits) in [
            (0, &["a", "x", "y"][..], true),
            (0, &["x", "b", "c"], false),
            (1, &["a", "b", "x"], true),
            (1, &["a", "b"], true),
            (1, &["a", "x", "c"], false),
            (1, &["b", "a", "c"], false),
            (1, &["a"], false),
            (2, &["a", "b", "c", "d"], true),
            (2, &["a", "c", "b"], false),
            (2, &["x", "a", "b", "c"], false),
        ] {
            let read = Journal::read(&saved(done), &names(declared));
            assert_eq!(read.is_ok(), fits, "{done} done, now {declared:?}");
            if let Err(error) = read {
                let said = error.to_string();
                assert!(said.contains(r#"["a", "b", "c"]"#), "{said}");
                assert!(said.contains(&format!("{declared:?}")), "{said}");
            }
        }
    }

    #[test]
    fn what_is_not_a_journal_is_refused() {
        for data in ["", "{}", r#"{"version":2,"phases":[],"input":null,"results":[]}"#] {
            let point = Checkpoint::new("x", data).unwrap();
            let read = Journal::read(&point, &names(&["a"]));
            assert!(matches!(read, Err(PhasesError::Unreadable { .. })), "{data}: {read:?}");
        }
    }
}
