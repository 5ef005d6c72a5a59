//! What a handler says that gives no outcome.

use std::error::Error;
use std::fmt;

use crate::outcome::Outcome;

/// Why a handler gives no outcome. The engine cannot see effects, so each case says what became of
/// them.
///
/// Any error turns into [`HandlerError::Unclassified`] with its message, so `?` works in handlers.
/// Say what an error means with [`Classify`] where you know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerError {
    /// It did **not** take effect, and may be tried again: the policy's
    /// [`OnFailure`](crate::OnFailure) decides when.
    Retryable(Outcome),
    /// It did **not** take effect and never will: the failure is stored and replayed.
    Permanent(Outcome),
    /// Nothing happened in this attempt: the key is free again at once.
    NotExecuted,
    /// It may have taken effect: under `hold` the operation is unknown, otherwise the next begin
    /// takes over.
    Unknown,
    /// An error that does not say whether the operation took effect: what `?` gives. Under `hold`
    /// the operation is unknown, since a call that was not answered may have been carried out.
    /// Under `rerun` and `resume`, which accept a repetition, it is handled as
    /// [`HandlerError::Retryable`].
    Unclassified(Outcome),
}

impl HandlerError {
    /// It did not take effect, and may be tried again.
    #[must_use]
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self::Retryable(Outcome::bytes(message.to_string()))
    }

    /// It did not take effect and never will.
    #[must_use]
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self::Permanent(Outcome::bytes(message.to_string()))
    }
}

impl<E: Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::Unclassified(Outcome::bytes(error.to_string()))
    }
}

/// Says what an error means for the operation, at the place where it is raised.
///
/// ```
/// use justonce_core::{Classify, HandlerError, Outcome};
///
/// # fn connect() -> Result<u32, std::io::Error> { Ok(1) }
/// # fn charge(_: u32, cents: u32) -> Result<u32, std::io::Error> { Ok(cents) }
/// fn handler(cents: &str) -> Result<Outcome, HandlerError> {
///     // It will never be a number: the failure is stored and replayed.
///     let cents: u32 = cents.parse().permanent()?;
///     // Nothing was sent yet: a retry may run it again at once.
///     let bank = connect().not_executed()?;
///     // The request may have arrived: it does not run again before that is found out.
///     let charged = charge(bank, cents).unknown()?;
///     Ok(Outcome::bytes(format!("charged {charged}")))
/// }
/// assert_eq!(handler("five"), Err(HandlerError::permanent("invalid digit found in string")));
/// assert_eq!(handler("5"), Ok(Outcome::bytes("charged 5")));
/// ```
pub trait Classify<T> {
    /// It did not take effect, and may be tried again: [`HandlerError::Retryable`].
    ///
    /// # Errors
    ///
    /// The error, classified.
    fn retryable(self) -> Result<T, HandlerError>;

    /// It did not take effect and never will: [`HandlerError::Permanent`].
    ///
    /// # Errors
    ///
    /// The error, classified.
    fn permanent(self) -> Result<T, HandlerError>;

    /// Nothing happened in this attempt: [`HandlerError::NotExecuted`].
    ///
    /// # Errors
    ///
    /// The error, classified.
    fn not_executed(self) -> Result<T, HandlerError>;

    /// It may have taken effect: [`HandlerError::Unknown`].
    ///
    /// # Errors
    ///
    /// The error, classified.
    fn unknown(self) -> Result<T, HandlerError>;
}

impl<T, E: fmt::Display> Classify<T> for Result<T, E> {
    fn retryable(self) -> Result<T, HandlerError> {
        self.map_err(HandlerError::retryable)
    }

    fn permanent(self) -> Result<T, HandlerError> {
        self.map_err(HandlerError::permanent)
    }

    fn not_executed(self) -> Result<T, HandlerError> {
        self.map_err(|_| HandlerError::NotExecuted)
    }

    fn unknown(self) -> Result<T, HandlerError> {
        self.map_err(|_| HandlerError::Unknown)
    }
}
