//! What is wrong with one value.

use super::tree::{Node, Origin};

/// What is wrong with one value, and where it stands.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) origin: Origin,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// What is wrong with the rest of a list.
    pub(super) more: Vec<Complaint>,
}

/// A value that was read, or what is wrong with it.
pub(super) type Read<T> = Result<T, Complaint>;

impl Complaint {
    /// About a value.
    pub(super) fn about(node: &Node, message: impl Into<String>) -> Self {
        Self { origin: node.origin.clone(), message: message.into(), help: None, more: Vec::new() }
    }

    /// All of them as one; nothing if there are none.
    pub(super) fn all(complaints: Vec<Self>) -> Option<Self> {
        let mut complaints = complaints.into_iter();
        let mut first = complaints.next()?;
        first.more.extend(complaints);
        Some(first)
    }

    /// With something to try.
    pub(super) fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }
}

/// What was expected, and what is there.
pub(super) fn expected(node: &Node, what: &str) -> Complaint {
    Complaint::about(node, format!("expected {what}, found {}", node.value.kind()))
}
