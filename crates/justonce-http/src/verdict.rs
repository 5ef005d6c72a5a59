//! What an inner service knows about the fate of an operation.

/// What an inner service knows about the fate of an operation, as an extension of its response.
/// Without one the status decides.
///
/// A service of another process says the same with the header `Idempotency-Outcome`: `final`,
/// `retryable` or `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is done; this reply is stored and replayed.
    Final,
    /// It certainly did not take effect: the key is free again at once.
    NotExecuted,
    /// It may have taken effect.
    Unknown,
}
