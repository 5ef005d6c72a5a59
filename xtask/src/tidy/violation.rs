//! What a rule reports.

use std::fmt;

/// A place where a style rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// The file, relative to the workspace root.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// What is wrong, and where it helps, what to do.
    pub(crate) message: String,
}

impl Violation {
    /// A violation at a line of a file.
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_like_a_compiler_message() {
        assert_eq!(Violation::new("a/b.rs", 3, "too long").to_string(), "a/b.rs:3: too long");
    }
}
