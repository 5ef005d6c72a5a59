//! One change of one file.

use std::ops::Range;

use anyhow::{Context, Result, ensure};

/// Stands for any text, the shortest that fits.
const ANYTHING: char = '⋯';

/// One change of one file, which a test must notice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mutant {
    /// The file, from the directory of its crate; behind a `#` the function that is changed.
    pub(super) place: &'static str,
    /// What is replaced. It occurs once in its place; one `⋯` stands for anything.
    old: &'static str,
    new: &'static str,
    /// A part of the names of the tests that are run first.
    pub(super) by: &'static str,
    /// Why no test notices it.
    pub(super) survives: Option<&'static str>,
}

/// A mutant that a test notices.
pub(super) const fn mutant(place: &'static str, old: &'static str, new: &'static str) -> Mutant {
    Mutant { place, old, new, by: "", survives: None }
}

impl Mutant {
    /// Names the tests that are about the place, to run them first.
    pub(super) const fn by(mut self, tests: &'static str) -> Self {
        self.by = tests;
        self
    }

    /// Says why no test can notice it, or need to.
    pub(super) const fn survives(mut self, why: &'static str) -> Self {
        self.survives = Some(why);
        self
    }

    /// The file, from the directory of its crate.
    pub(super) fn file(&self) -> &'static str {
        self.place.split('#').next().unwrap_or_default()
    }

    /// The name of the function that is changed, if only one may be.
    pub(super) fn function(&self) -> Option<&'static str> {
        self.place.split_once('#').map(|(_, name)| name)
    }

    /// The text with the change, of the same length: comments make room, blanks fill it.
    pub(super) fn apply(&self, text: &str) -> Result<String> {
        let range = self.range(text)?;
        let mut changed = text.to_owned();
        changed.replace_range(range, self.new);
        while changed.len() > text.len() {
            let comment = line_of_comment(&changed);
            let comment = comment.with_context(|| format!("{self}: too long for its file"))?;
            changed.replace_range(comment, "");
        }
        let missing = text.len() - changed.len();
        changed.extend(std::iter::repeat_n(' ', missing));
        Ok(changed)
    }

    /// The line of the change, counted from one.
    pub(super) fn line(&self, text: &str) -> Result<usize> {
        let range = self.range(text)?;
        let (before, _) = text.split_at(range.start);
        Ok(before.matches('\n').count() + 1)
    }

    fn range(&self, text: &str) -> Result<Range<usize>> {
        let place = match self.function() {
            Some(name) => function_in(text, name).with_context(|| format!("no function {name}"))?,
            None => 0..text.len(),
        };
        let within = text.get(place.clone()).unwrap_or_default();
        let (first, rest) = self.old.split_once(ANYTHING).unwrap_or((self.old, ""));
        let mut found = within.match_indices(first);
        let start = found.next().map(|(at, _)| at).with_context(|| format!("{self}: not found"))?;
        ensure!(found.next().is_none(), "{self}: found twice");
        let mut end = start + first.len();
        for part in rest.split(ANYTHING).filter(|part| !part.is_empty()) {
            let behind = within.get(end..).unwrap_or_default();
            let at = behind.find(part).with_context(|| format!("{self}: no end"))?;
            end += at + part.len();
        }
        Ok(place.start + start..place.start + end)
    }
}

impl std::fmt::Display for Mutant {
    /// The place and the change, on one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line(self.new).as_str() {
            "" => write!(f, "{}: without `{}`", self.place, line(self.old)),
            new => write!(f, "{}: `{}` becomes `{new}`", self.place, line(self.old)),
        }
    }
}

/// The text of a function, from its `CREATE` to the next statement.
fn function_in(text: &str, name: &str) -> Option<Range<usize>> {
    let head = format!("FUNCTION @schema@.{name}(");
    let (at, _) = text.match_indices(&head).find(|(at, _)| {
        let line = text.get(..*at).and_then(|before| before.rsplit('\n').next());
        line.is_some_and(|line| line.starts_with("CREATE"))
    })?;
    let behind = text.get(at..)?;
    let next =
        ["\nCREATE ", "\nALTER ", "\nINSERT "].into_iter().filter_map(|next| behind.find(next));
    Some(at..next.min().map_or(text.len(), |end| at + end))
}

/// The first line that is only a comment, with its end.
fn line_of_comment(text: &str) -> Option<Range<usize>> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("--") {
            return Some(start..start + line.len());
        }
        start += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "-- a comment\nlocal a = 1\nreturn a\n";

    #[test]
    fn the_text_keeps_its_length() {
        let shorter = mutant("a.lua", "local a = 1\n", "").apply(TEXT).unwrap();
        assert_eq!(shorter.len(), TEXT.len());
        assert_eq!(shorter.trim_end(), "-- a comment\nreturn a");
        let longer = mutant("a.lua", "= 1", "= 1 + 1").apply(TEXT).unwrap();
        assert_eq!(longer.len(), TEXT.len());
        assert_eq!(longer.trim_end(), "local a = 1 + 1\nreturn a");
        assert!(mutant("a.lua", "= 1", "= 1 + 1 + 1 + 1 + 1").apply(TEXT).is_err());
    }

    #[test]
    fn what_is_replaced_occurs_once() {
        assert!(mutant("a.lua", "b", "").apply(TEXT).is_err());
        assert!(mutant("a.lua", "a", "").apply(TEXT).is_err());
        let between = mutant("a.lua", "local⋯= 1\n", "").apply(TEXT).unwrap();
        assert_eq!(between.trim_end(), "-- a comment\nreturn a");
        assert_eq!(mutant("a.lua", "return", "").line(TEXT).unwrap(), 3);
    }

    #[test]
    fn a_function_ends_where_the_next_statement_begins() {
        let text = "CREATE FUNCTION @schema@.a_1() x\n\nCREATE FUNCTION @schema@.b_1() x\n";
        let changed = mutant("a.sql#b_1", "x", "y").apply(text).unwrap();
        assert!(changed.contains("a_1() x") && changed.contains("b_1() y"), "{changed}");
        assert!(mutant("a.sql#c_1", "x", "y").apply(text).is_err());
    }
}
