//! The limits of a route for each of its callers.

use super::rate::Rate;

/// What each caller of a route may use. Over a limit new operations are refused with 429; replays
/// and other answers to duplicates are not.
///
/// ```
/// use std::time::Duration;
///
/// use justonce_http::{CallerLimits, Rate, Rule};
///
/// // The default: no limits.
/// let none = Rule::default();
///
/// // Customised: 600 new operations per minute, at most 20 at once; five may run at the same time.
/// let limits = CallerLimits::default()
///     .rate(Rate::new(600, Duration::from_secs(60)).burst(20))
///     .concurrent(5)
///     .stored_bytes(10 * 1024 * 1024);
/// let payments = Rule::default().caller_limits(limits);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerLimits {
    pub(super) rate: Option<Rate>,
    pub(super) concurrent: Option<usize>,
    pub(super) stored_bytes: Option<u64>,
}

impl CallerLimits {
    /// Sets how many operations may be begun in which time. Default: no limit.
    #[must_use]
    pub const fn rate(self, rate: Rate) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Sets how many operations may run at the same time. Default: no limit.
    #[must_use]
    pub const fn concurrent(self, operations: usize) -> Self {
        Self { concurrent: Some(operations), ..self }
    }

    /// Sets how many bytes of outcomes may be stored within the route's retention. Default: no
    /// limit.
    ///
    /// Counted is what this process has stored, before it is compressed. The operation that
    /// reaches the limit is still stored.
    #[must_use]
    pub const fn stored_bytes(self, bytes: u64) -> Self {
        Self { stored_bytes: Some(bytes), ..self }
    }

    /// How many operations may be begun in which time.
    #[must_use]
    pub const fn max_rate(&self) -> Option<Rate> {
        self.rate
    }

    /// How many operations may run at the same time.
    #[must_use]
    pub const fn max_concurrent(&self) -> Option<usize> {
        self.concurrent
    }

    /// How many bytes may be stored within the retention.
    #[must_use]
    pub const fn max_stored_bytes(&self) -> Option<u64> {
        self.stored_bytes
    }

    /// Whether nothing is limited.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.rate.is_none() && self.concurrent.is_none() && self.stored_bytes.is_none()
    }

    /// Those for requests that store nothing.
    pub(crate) const fn without_stored(self) -> Self {
        Self { stored_bytes: None, ..self }
    }
}
