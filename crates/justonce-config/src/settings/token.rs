//! Tokens of the admin address, and texts that are never shown.

use std::fmt;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use crate::invalid::{Invalid, Read};
use crate::kind::full_text;
use crate::report::Report;
use crate::section::Sourced;
use crate::tree::Node;

/// The token that a caller of the admin address must show, or where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminToken {
    /// The token itself.
    Text(Secret),
    /// The file it stands in.
    File(PathBuf),
}

impl AdminToken {
    /// The token, read from its file if it stands in one. White space around it does not count.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or holds no token.
    pub fn read(&self) -> std::io::Result<Secret> {
        match self {
            Self::Text(token) => Ok(token.clone()),
            Self::File(path) => match std::fs::read_to_string(path)?.trim() {
                "" => Err(Error::new(ErrorKind::InvalidData, "the file of the token is empty")),
                token => Ok(Secret::new(token)),
            },
        }
    }

    /// The token of a setting `name`, or of `name_file`.
    pub(super) fn of(
        name: &str,
        text: Option<Sourced<Secret>>,
        file: Option<Sourced<PathBuf>>,
        report: &mut Report,
    ) -> Option<Self> {
        if let (Some(text), Some(file)) = (&text, &file) {
            let other = report.name_of(&text.origin);
            let message = format!("`{name}_file`: there is an `{name}` too ({other})");
            report.at(&file.origin, message, Some("keep one of them".into()));
        }
        let text = text.map(|token| Self::Text(token.value));
        text.or_else(|| file.map(|path| Self::File(path.value)))
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text. Compare it in constant time, and do not log it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A token.
pub(super) fn secret(node: &Node) -> Read<Secret> {
    let text = full_text(node)?;
    if text.chars().all(|c| c.is_ascii_graphic()) {
        Ok(Secret::new(text))
    } else {
        Err(Invalid::at(node, "a token is made of visible ASCII characters without spaces"))
    }
}
