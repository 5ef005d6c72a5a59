//! What became of the mutants.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Result, bail};

use super::mutant::Mutant;
use super::suite::Failed;

/// The part of all mutants that must be noticed, in percent.
const LEAST_PERCENT: usize = 95;

/// A mutant that was tried.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) mutant: Mutant,
    /// The line of the change.
    pub(super) line: usize,
    pub(super) noticed: Option<Failed>,
    pub(super) took: Duration,
}

impl Tried {
    /// How it ended, in words.
    pub(super) fn ended(&self) -> String {
        match (&self.noticed, self.mutant.survives) {
            (Some(Failed { test, hung: true }), _) => format!("{test} (hung)"),
            (Some(Failed { test, .. }), _) => test.clone(),
            (None, Some(why)) => format!("survives: {why}"),
            (None, None) => "SURVIVES".to_owned(),
        }
    }

    fn row(&self) -> String {
        let change = self.mutant.to_string().replace('|', "\\|");
        format!("| {}:{} | {change} | {} |", self.mutant.file(), self.line, self.ended())
    }
}

/// The table of all mutants, and of those that survive.
pub(super) fn table(tried: &[Tried]) -> String {
    let mut text = String::from("| place | mutant | noticed by |\n|---|---|---|\n");
    for one in tried {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", one.row());
    }
    let noticed = tried.iter().filter(|one| one.noticed.is_some()).count();
    let _ = writeln!(text, "\n{noticed} of {} mutants are noticed ({} %)", tried.len(), {
        (100 * noticed).checked_div(tried.len()).unwrap_or(100)
    });
    for one in tried.iter().filter(|one| one.noticed.is_none()) {
        let _ = writeln!(text, "{}\n    {}", one.mutant, one.ended());
    }
    for one in tried.iter().filter(|one| one.noticed.is_some() && one.mutant.survives.is_some()) {
        let _ = writeln!(text, "{}\n    is noticed now: remove the reason", one.mutant);
    }
    text
}

/// An error if a mutant survives without a reason, or too many of a whole table do.
pub(super) fn verdict(tried: &[Tried], whole: bool) -> Result<()> {
    let unexplained = tried.iter().filter(|one| one.noticed.is_none());
    let unexplained = unexplained.filter(|one| one.mutant.survives.is_none()).count();
    if unexplained > 0 {
        bail!(
            "{unexplained} mutants survive without a reason: write a test that notices them, or \
             the reason beside them"
        );
    }
    let noticed = tried.iter().filter(|one| one.noticed.is_some()).count();
    if whole && noticed * 100 < tried.len() * LEAST_PERCENT {
        bail!("less than {LEAST_PERCENT} % of the mutants are noticed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::mutant::mutant;

    fn tried(mutant: Mutant, test: Option<&str>) -> Tried {
        let noticed = test.map(|test| Failed { test: test.to_owned(), hung: false });
        Tried { mutant, line: 1, noticed, took: Duration::ZERO }
    }

    #[test]
    fn a_survivor_needs_a_reason() {
        let one = mutant("lua/a.lua", "1", "2");
        verdict(&[tried(one, Some("a_test"))], true).unwrap();
        assert!(verdict(&[tried(one, None)], false).is_err());
        let known = one.survives("only a hint");
        verdict(&[tried(known, None)], false).unwrap();
        // One of two is not enough of a whole table.
        assert!(verdict(&[tried(one, Some("a_test")), tried(known, None)], true).is_err());
        let text = table(&[tried(known, Some("a_test"))]);
        assert!(text.contains("1 of 1 mutants are noticed (100 %)"), "{text}");
        assert!(text.contains("is noticed now"), "{text}");
    }
}
