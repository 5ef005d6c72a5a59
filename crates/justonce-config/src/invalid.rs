//! What is wrong with one value.

use super::tree::{Node, Origin};

/// What is wrong with one value, and where it stands.
#[derive(Debug)]
pub(super) struct Invalid {
    pub(super) origin: Origin,
    /// The member of the value that is wrong, with its dot; empty for the value itself.
    pub(super) inside: String,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// What is wrong with the rest of a list.
    pub(super) more: Vec<Invalid>,
}

/// A value that was read, or what is wrong with it.
pub(super) type Read<T> = Result<T, Invalid>;

impl Invalid {
    /// About a value.
    pub(super) fn at(node: &Node, message: impl Into<String>) -> Self {
        let (origin, message) = (node.origin.clone(), message.into());
        Self { origin, inside: String::new(), message, help: None, more: Vec::new() }
    }

    /// A value of another type than expected.
    pub(super) fn expected(node: &Node, what: &str) -> Self {
        Self::at(node, format!("expected {what}, found {}", node.value.kind()))
    }

    /// All of them as one; nothing if there are none.
    pub(super) fn all(found: Vec<Self>) -> Option<Self> {
        let mut found = found.into_iter();
        let mut first = found.next()?;
        first.more.extend(found);
        Some(first)
    }

    /// With something to try.
    pub(super) fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }
}
