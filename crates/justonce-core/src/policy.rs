//! The policy of an operation: its durations, and what happens when it lapses or fails.

use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use crate::clock::Timestamp;

/// The shortest lease: below it, a pause of the process looks like its death.
pub const MIN_LEASE: Duration = Duration::from_millis(10);
/// The longest lease, and the longest all renewals together may make it.
pub const MAX_LEASE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The longest retention, and the longest life of a tombstone.
pub const MAX_RETENTION: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// The policy of an operation. It is stored with the claim, so that a process that finds the record
/// later keeps the policy under which it was begun.
///
/// ```
/// use justonce_core::{AfterRetention, OnLapsed, Policy};
/// use std::time::Duration;
///
/// // The default: 30 s lease, capped at 15 min, 24 h retention. What was interrupted is unknown
/// // until it is resolved, and does not run again.
/// let default = Policy::default();
/// assert_eq!(default.on_lapsed(), OnLapsed::Hold);
///
/// // Customised: for effects that may be repeated; late arrivals are refused for a month.
/// let repeatable = Policy::builder()
///     .on_lapsed(OnLapsed::Rerun)
///     .retention(Duration::from_secs(72 * 3600))
///     .after_retention(AfterRetention::Refuse(Duration::from_secs(30 * 24 * 3600)))
///     .build()?;
/// # Ok::<(), justonce_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub(crate) lease: Duration,
    pub(crate) lease_cap: Duration,
    pub(crate) on_lapsed: OnLapsed,
    pub(crate) on_failure: OnFailure,
    pub(crate) max_attempts: Option<NonZeroU32>,
    pub(crate) retention: Duration,
    pub(crate) after_retention: AfterRetention,
}

/// What becomes of an operation whose owner stopped renewing its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OnLapsed {
    /// Claim and run it again from the start: at least once.
    Rerun,
    /// Claim it again and hand over the last checkpoint.
    Resume,
    /// It does not run again; it is unknown until it is resolved: at most once.
    Hold,
}

/// What becomes of an operation whose handler failed without effect, for a reason that may pass. A
/// permanent failure is always stored and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// The failure is stored and replayed.
    Replay,
    /// The key is free again at once.
    Release,
    /// The record stays failed until the back-off is over, then the next begin claims it, up to
    /// the limit of attempts.
    Retry(BackOff),
}

/// Exponential back-off with jitter: doubling from `first` up to `max`, each time between half of
/// that and all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackOff {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl BackOff {
    /// From 200 ms to one minute.
    pub const DEFAULT: Self =
        Self { first: Duration::from_millis(200), max: Duration::from_secs(60) };

    /// When the operation may be tried again after its `attempt`-th attempt failed at `now`.
    /// `jitter` is a uniform random number.
    #[must_use]
    pub fn until(&self, now: Timestamp, attempt: u32, jitter: u32) -> Timestamp {
        let doublings = attempt.saturating_sub(1).min(63);
        let whole = self.first.as_millis().saturating_mul(1_u128 << doublings);
        let whole = whole.min(self.max.as_millis());
        let half = whole / 2;
        let delay = half + (whole - half) * u128::from(jitter) / u128::from(u32::MAX);
        now.after(Duration::from_millis(u64::try_from(delay).unwrap_or(u64::MAX)))
    }
}

/// What a begin after the retention meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AfterRetention {
    /// Nothing: it is a new operation.
    New,
    /// A tombstone that refuses it, for this long.
    Refuse(Duration),
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            lease_cap: Duration::from_secs(15 * 60),
            on_lapsed: OnLapsed::Hold,
            on_failure: OnFailure::Retry(BackOff::DEFAULT),
            max_attempts: NonZeroU32::new(10),
            retention: Duration::from_secs(24 * 3600),
            after_retention: AfterRetention::New,
        }
    }
}

impl Policy {
    /// Starts from the defaults.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder(Self::default())
    }

    /// How long a claim is honoured without renewal.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long one claim may last with all its renewals.
    #[must_use]
    pub const fn lease_cap(&self) -> Duration {
        self.lease_cap
    }

    /// What becomes of a lapsed lease.
    #[must_use]
    pub const fn on_lapsed(&self) -> OnLapsed {
        self.on_lapsed
    }

    /// The same policy with another rule for a lapsed lease.
    #[must_use]
    pub const fn with_on_lapsed(mut self, rule: OnLapsed) -> Self {
        self.on_lapsed = rule;
        self
    }

    /// What becomes of a failure that may be tried again.
    #[must_use]
    pub const fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// How often the operation may be claimed, lapsed claims included; nothing for no limit.
    #[must_use]
    pub const fn max_attempts(&self) -> Option<NonZeroU32> {
        self.max_attempts
    }

    /// How long an outcome is replayed, counted from completion.
    #[must_use]
    pub const fn retention(&self) -> Duration {
        self.retention
    }

    /// What a begin after the retention meets.
    #[must_use]
    pub const fn after_retention(&self) -> AfterRetention {
        self.after_retention
    }

    /// Stores keep milliseconds; a policy must read back as it was.
    fn in_whole_millis(mut self) -> Self {
        let whole = |duration| Timestamp::ZERO.after(duration).since(Timestamp::ZERO);
        self.lease = whole(self.lease);
        self.lease_cap = whole(self.lease_cap);
        self.retention = whole(self.retention);
        if let AfterRetention::Refuse(life) = &mut self.after_retention {
            *life = whole(*life);
        }
        if let OnFailure::Retry(back_off) = &mut self.on_failure {
            back_off.first = whole(back_off.first);
            back_off.max = whole(back_off.max);
        }
        self
    }

    /// Whether `attempt` was the last one allowed.
    #[must_use]
    pub(crate) fn is_last(&self, attempt: u32) -> bool {
        self.max_attempts.is_some_and(|max| attempt >= max.get())
    }
}

/// Collects the parts of a [`Policy`], starting from the defaults.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct PolicyBuilder(Policy);

impl PolicyBuilder {
    /// How long a claim is honoured without renewal. Default: 30 s.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.0.lease = lease;
        self
    }

    /// How long one claim may last with all its renewals. Default: 15 min.
    pub const fn lease_cap(mut self, cap: Duration) -> Self {
        self.0.lease_cap = cap;
        self
    }

    /// What becomes of a lapsed lease. Default: [`OnLapsed::Hold`].
    pub const fn on_lapsed(mut self, rule: OnLapsed) -> Self {
        self.0.on_lapsed = rule;
        self
    }

    /// What becomes of a failure that may be tried again. Default: it is, with
    /// [`BackOff::DEFAULT`].
    pub const fn on_failure(mut self, rule: OnFailure) -> Self {
        self.0.on_failure = rule;
        self
    }

    /// How often the operation may be claimed. Default: 10; `None` for no limit.
    pub const fn max_attempts(mut self, limit: Option<NonZeroU32>) -> Self {
        self.0.max_attempts = limit;
        self
    }

    /// How long an outcome is replayed. Default: 24 h.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.0.retention = retention;
        self
    }

    /// What a begin after the retention meets. Default: [`AfterRetention::New`].
    pub const fn after_retention(mut self, rule: AfterRetention) -> Self {
        self.0.after_retention = rule;
        self
    }

    /// Checks the whole.
    ///
    /// # Errors
    ///
    /// If a duration is out of its range or two of them contradict each other. Durations are
    /// rounded up to whole milliseconds.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let policy = self.0.in_whole_millis();
        if !(MIN_LEASE..=MAX_LEASE).contains(&policy.lease) {
            return Err(PolicyError::Lease(policy.lease));
        }
        if policy.lease_cap < policy.lease || policy.lease_cap > MAX_LEASE {
            return Err(PolicyError::LeaseCap(policy.lease_cap));
        }
        if policy.retention > MAX_RETENTION || policy.retention.is_zero() {
            return Err(PolicyError::Retention(policy.retention));
        }
        if let AfterRetention::Refuse(life) = policy.after_retention
            && (life > MAX_RETENTION || life.is_zero())
        {
            return Err(PolicyError::Retention(life));
        }
        if let OnFailure::Retry(back_off) = policy.on_failure
            && (back_off.first > back_off.max || back_off.max > MAX_RETENTION)
        {
            return Err(PolicyError::BackOff(back_off));
        }
        Ok(policy)
    }
}

/// Why a policy was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The lease is shorter than [`MIN_LEASE`] or longer than [`MAX_LEASE`].
    #[error("a lease of {0:?} is out of range: {MIN_LEASE:?} to {MAX_LEASE:?}")]
    Lease(Duration),
    /// The cap is shorter than the lease or longer than [`MAX_LEASE`].
    #[error("a lease cap of {0:?} is out of range: at least the lease, at most {MAX_LEASE:?}")]
    LeaseCap(Duration),
    /// The retention, or the life of the tombstone, is zero or longer than [`MAX_RETENTION`].
    #[error("a retention of {0:?} is out of range: more than zero, at most {MAX_RETENTION:?}")]
    Retention(Duration),
    /// The first delay is longer than the longest one.
    #[error(
        "a back-off from {:?} to {:?} is not possible: the first delay must not exceed the \
         longest, and the longest not {MAX_RETENTION:?}",
        .0.first,
        .0.max
    )]
    BackOff(BackOff),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_within_its_jitter_and_stops_at_the_maximum() {
        let back_off = BackOff { first: Duration::from_secs(1), max: Duration::from_secs(10) };
        let now = Timestamp::from_millis(1_000_000);
        for (attempt, whole) in [(1, 1_000), (2, 2_000), (4, 8_000), (5, 10_000), (9_999, 10_000)] {
            let least = back_off.until(now, attempt, 0).since(now).as_millis();
            let most = back_off.until(now, attempt, u32::MAX).since(now).as_millis();
            assert_eq!((least, most), (whole / 2, whole), "attempt {attempt}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let second = Duration::from_secs(1);
        let build = |b: PolicyBuilder| b.build().unwrap_err();
        assert_eq!(
            build(Policy::builder().lease(Duration::ZERO)),
            PolicyError::Lease(Duration::ZERO)
        );
        assert_eq!(build(Policy::builder().lease_cap(second)), PolicyError::LeaseCap(second));
        assert_eq!(
            build(Policy::builder().retention(Duration::ZERO)),
            PolicyError::Retention(Duration::ZERO)
        );
        let wrong = BackOff { first: second * 2, max: second };
        assert_eq!(
            build(Policy::builder().on_failure(OnFailure::Retry(wrong))),
            PolicyError::BackOff(wrong)
        );
        let refuse = AfterRetention::Refuse(Duration::MAX);
        assert!(Policy::builder().after_retention(refuse).build().is_err());
    }
}
