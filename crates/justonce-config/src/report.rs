//! What is wrong with a configuration, and how it is shown.

use std::fmt;
use std::sync::Arc;

use super::tree::Origin;

/// More mistakes than this are not shown: the first ones are to be mended first anyway.
const MAX_SHOWN: usize = 50;
/// More mistakes than this are not even kept: each costs a walk through the file.
const MAX_KEPT: usize = 200;
/// The most characters of a line that are shown; what is before and behind is left out.
const MAX_EXCERPT_CHARS: usize = 100;
/// The settings whose lines are never shown.
const SECRETS: [&str; 2] = ["admin_token", "callback_token"];
/// What credentials begin with, on whatever line they stand.
const CREDENTIALS: [&str; 3] = ["authorization:", "bearer ", "basic "];

/// A configuration that was refused: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    mistakes: Vec<Mistake>,
}

impl ConfigError {
    /// What is wrong, in the order of the file; then variables and flags. Of very many mistakes,
    /// the first that were found.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.mistakes.iter().take(MAX_SHOWN).enumerate() {
            if at > 0 {
                f.write_str("\n\n")?;
            }
            mistake.fmt(f)?;
        }
        match self.mistakes.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub location: Location,
    /// What.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// Where something wrong was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the file.
    Line {
        /// The file's name.
        file: Arc<str>,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The line's text, if it may be shown.
        excerpt: Option<Excerpt>,
    },
    /// The file as a whole.
    File(Arc<str>),
    /// The variable of this name.
    Variable(Arc<str>),
    /// This flag.
    Flag(Arc<str>),
    /// In what was not said.
    Nowhere,
}

/// A part of a line, and which of its characters are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    text: String,
    before: usize,
    width: usize,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = &self.message;
        match &self.location {
            Location::Line { file, line, column, excerpt } => {
                write!(f, "{file}:{line}:{column}: {message}")?;
                if let Some(excerpt) = excerpt {
                    let gutter = " ".repeat(line.to_string().len());
                    let before = " ".repeat(excerpt.before);
                    let carets = "^".repeat(excerpt.width);
                    write!(f, "\n{gutter} |\n{line} | {}", excerpt.text)?;
                    write!(f, "\n{gutter} | {before}{carets}")?;
                    return self.help.iter().try_for_each(|help| write!(f, " {help}"));
                }
            }
            Location::File(name) => write!(f, "{name}: {message}")?,
            Location::Variable(name) => write!(f, "variable {name}: {message}")?,
            Location::Flag(flag) => write!(f, "flag {flag}: {message}")?,
            Location::Nowhere => f.write_str(message)?,
        }
        self.help.iter().try_for_each(|help| write!(f, "\n  {help}"))
    }
}

/// Collects what is wrong.
#[derive(Debug)]
pub(super) struct Report {
    file: Option<(Arc<str>, Arc<str>)>,
    found: Vec<(usize, Mistake)>,
}

impl Report {
    /// For a configuration with this file: its name and its text.
    pub(super) fn new(file: Option<(&str, &str)>) -> Self {
        let file = file.map(|(name, text)| (Arc::from(name), Arc::from(text)));
        Self { file, found: Vec::new() }
    }

    /// Reports something about the place a value came from.
    pub(super) fn at(&mut self, origin: &Origin, message: String, help: Option<String>) {
        if self.is_full() {
            return;
        }
        let location = self.location(origin);
        let order = if let Origin::File(span) = origin { span.start } else { usize::MAX };
        let mistake = Mistake { location, message, help };
        // Routes inherit, and would repeat what is wrong with what they inherit.
        if !self.found.iter().any(|(_, other)| *other == mistake) {
            self.found.push((order, mistake));
        }
    }

    /// Reports something about the file as a whole.
    pub(super) fn whole_file(&mut self, message: String) {
        let name = self.file.as_ref().map(|(name, _)| Arc::clone(name));
        let location = name.map_or(Location::Nowhere, Location::File);
        self.found.push((0, Mistake { location, message, help: None }));
    }

    /// Whether nothing more is kept.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= MAX_KEPT
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// What was found, in the order of the file.
    pub(super) fn into_error(mut self) -> ConfigError {
        self.found.sort_by_key(|(order, _)| *order);
        ConfigError { mistakes: self.found.into_iter().map(|(_, mistake)| mistake).collect() }
    }

    /// The line of a place in the file, from 1.
    pub(super) fn line_of(&self, at: usize) -> usize {
        let text = self.file.as_ref().map_or("", |(_, text)| text);
        1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    /// How a message about another place names this one.
    pub(super) fn name_of(&self, origin: &Origin) -> String {
        match origin {
            Origin::File(span) => format!("line {}", self.line_of(span.start)),
            Origin::Variable(name) => format!("variable {name}"),
            Origin::Flag(flag) => format!("flag {flag}"),
            Origin::Default => "the defaults".to_owned(),
        }
    }

    fn location(&self, origin: &Origin) -> Location {
        match (origin, &self.file) {
            (Origin::Variable(name), _) => Location::Variable(Arc::clone(name)),
            (Origin::Flag(flag), _) => Location::Flag(Arc::clone(flag)),
            (Origin::File(span), Some((file, text))) => {
                let (line, column, excerpt) = look_up(text, span.start, span.end);
                Location::Line { file: Arc::clone(file), line, column, excerpt }
            }
            (_, Some((file, _))) => Location::File(Arc::clone(file)),
            _ => Location::Nowhere,
        }
    }
}

/// The line and the column of a place, and the text of the line.
fn look_up(text: &str, start: usize, end: usize) -> (usize, usize, Option<Excerpt>) {
    // A place inside a character is the place of the character.
    let start = (0..=start.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let (before, behind) = text.split_at(start.unwrap_or(0));
    let line = 1 + before.matches('\n').count();
    let head = before.rsplit('\n').next().unwrap_or_default();
    let tail = behind.split('\n').next().unwrap_or_default().trim_end_matches('\r');
    let column = 1 + head.chars().count();
    let meant = end.saturating_sub(before.len()).min(tail.len());
    let width = tail.char_indices().filter(|(at, _)| *at < meant).count().max(1);
    (line, column, excerpt(head, tail, width))
}

fn excerpt(head: &str, tail: &str, width: usize) -> Option<Excerpt> {
    if shows_secret(head, tail) {
        return None;
    }
    let before = head.chars().count().min(MAX_EXCERPT_CHARS / 2);
    let skipped = head.chars().count() - before;
    let line = without_passwords(&format!("{head}{tail}"));
    let shown = line.chars().skip(skipped).take(MAX_EXCERPT_CHARS);
    // Tabs and control characters would move the caret, or more.
    let text: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = text.trim_end().to_owned();
    Some(Excerpt { text, before, width: width.min(MAX_EXCERPT_CHARS - before) })
}

/// Addresses may hold a user and a password: stars take their place.
fn without_passwords(line: &str) -> String {
    let mut parts = line.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let authority = part.split(['/', '"', '\'', ' ']).next().unwrap_or_default();
        let secret = authority.rfind('@').unwrap_or(0);
        let (secret, rest) = part.split_at(secret);
        shown.push_str("://");
        shown.extend(secret.chars().map(|_| '*'));
        shown.push_str(rest);
    }
    shown
}

fn shows_secret(head: &str, tail: &str) -> bool {
    let line = format!("{head}{tail}").replace(['"', '\''], "");
    let is_set = |secret: &&str| {
        line.trim_start().strip_prefix(*secret).is_some_and(|rest| !rest.starts_with("_file"))
    };
    let lower = line.to_ascii_lowercase();
    // Headers with values are those of a probe: any of them may be a credential.
    let has_values = lower.contains("headers") && lower.contains(": ");
    SECRETS.iter().any(is_set)
        || CREDENTIALS.iter().any(|credential| lower.contains(credential))
        || has_values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, start: usize, end: usize) -> String {
        let mut report = Report::new(Some(("a.toml", text)));
        report.at(&Origin::File(start..end), "wrong".into(), Some("do better".into()));
        report.into_error().to_string()
    }

    #[test]
    fn a_problem_shows_its_line_and_points_at_what_is_meant() {
        let text = "a = 1\n\tb = 2\r\n";
        assert_eq!(shown(text, 11, 12), "a.toml:2:6: wrong\n  |\n2 |  b = 2\n  |      ^ do better");
    }

    #[test]
    fn places_outside_the_text_and_inside_characters_are_no_problem() {
        assert!(shown("ä", 1, 9).starts_with("a.toml:1:1: wrong"));
        assert!(shown("a", 77, 99).starts_with("a.toml:1:2: wrong"));
        assert!(shown("", 0, 0).starts_with("a.toml:1:1: wrong"));
    }

    #[test]
    fn a_long_line_is_cut_around_what_is_meant() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let shown = shown(&text, 500, 501);
        assert!(shown.lines().all(|line| line.len() < 120), "{shown}");
        assert!(shown.contains("aXb"), "{shown}");
    }

    #[test]
    fn the_line_of_a_secret_is_never_shown() {
        for line in ["admin_token = 12345", "  \"admin_token\" = 12345", "admin_token=12345"] {
            assert!(!shown(line, 0, 1).contains("12345"), "{line}");
        }
        assert!(shown("admin_token_file = 12345", 0, 1).contains("12345"));
        for line in [
            "callback_token = 12345",
            "headers = [\"Authorization: Bearer 12345\"]",
            "probe = { headers = [\"authorization Bearer 12345\"] }",
            "headers = ['x-key: 12345']",
        ] {
            assert!(!shown(line, 0, 1).contains("12345"), "{line}");
        }
        let two = "a = ['http://u:pw@h/@', 'redis://:pw@h']";
        assert!(shown(two, 0, 1).contains("a = ['http://****@h/@', 'redis://***@h']"));
    }
}
