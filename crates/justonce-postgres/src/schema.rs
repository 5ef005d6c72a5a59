//! The schema that holds everything of the store.

use std::fmt;

/// The longest name, in bytes: PostgreSQL cuts longer ones.
const MAX_NAME_BYTES: usize = 63;

/// The name of a schema: lower-case letters, digits and `_`, so that it never needs quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema(String);

impl Schema {
    pub(crate) fn new(name: &str) -> Result<Self, InvalidSchema> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        if starts && name.len() <= MAX_NAME_BYTES && name.chars().all(allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidSchema(name.to_owned()))
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// A text with the schema's name filled in.
    pub(crate) fn fill(&self, sql: &str) -> String {
        sql.replace("@schema@", &format!("\"{}\"", self.0))
            .replace("@channel@", &format!("'{}'", self.0))
    }
}

/// A name that a schema cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSchema(String);

impl fmt::Display for InvalidSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} cannot be the name of a schema here: use lower-case letters, digits and `_`, \
             beginning with a letter, at most {MAX_NAME_BYTES} of them",
            self.0
        )
    }
}

impl std::error::Error for InvalidSchema {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        for good in ["justonce", "_a1", &"x".repeat(63)] {
            assert!(Schema::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "Justonce", "a-b", "a\"b", "a'b", "ä", &"x".repeat(64)] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
    }
}
