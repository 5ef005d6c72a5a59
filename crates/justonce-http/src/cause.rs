//! What an inner service knows about the cause of trouble.

use std::sync::Arc;

/// What an inner service saw when it does not know whether an operation took effect: an extension
/// of its response, beside its [`Verdict`](crate::Verdict). It is kept with the record and logged,
/// for operators; callers never see it.
///
/// ```
/// use justonce_http::{Cause, Verdict};
///
/// let mut response = http::Response::new("no answer");
/// response.extensions_mut().insert(Verdict::Unknown);
/// response.extensions_mut().insert(Cause::new("phase=waiting error=reset"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause(Arc<str>);

impl Cause {
    /// A cause in a few words.
    #[must_use]
    pub fn new(cause: impl Into<Arc<str>>) -> Self {
        Self(cause.into())
    }

    /// The words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who answered, as an extension of a response: the address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredBy(pub Arc<str>);

/// The name of a problem, as an extension of its response: the `instance` that the caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance(pub uuid::Uuid);
