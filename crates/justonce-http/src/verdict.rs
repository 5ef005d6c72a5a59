//! What an inner service knows about the fate of an operation, and about its answer.

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

/// As an extension of a response: only the end of its connection ended the body, so nobody can
/// tell whether that is all of it. Such an answer reaches its caller and is not stored: where it
/// would have been, the operation is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unframed;
