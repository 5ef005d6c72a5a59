//! How a backend fails the suite.

use std::error::Error;
use std::fmt;

/// Where a backend deviates from the rules.
///
/// It is no [`Error`], so that `?` turns every error into one.
pub struct Deviation(String);

/// How a chapter of the suite ends.
pub type Verdict = Result<(), Deviation>;

impl Deviation {
    /// A deviation in words.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Deviation {
    /// A failing test prints this, so it is for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: Error> From<E> for Deviation {
    fn from(error: E) -> Self {
        Self(format!("a surprise: {error}"))
    }
}

/// Ends the function with a [`Deviation`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Deviation::new(format!($($message)+)));
        }
    };
}

/// Ends the function with a [`Deviation`] unless what was seen is what was expected.
macro_rules! ensure_eq {
    ($seen:expr, $expected:expr, $($message:tt)+) => {
        match (&$seen, &$expected) {
            (seen, expected) => $crate::conformance::deviation::ensure!(
                *seen == *expected,
                "{}\n     seen: {seen:?}\n expected: {expected:?}",
                format_args!($($message)+)
            ),
        }
    };
}

pub(super) use {ensure, ensure_eq};
