//! The durations and policies of the suite.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use justonce_core::{
    AfterRetention, BackOff, OnFailure, OnLapsed, Policy, PolicyBuilder, PolicyError,
};

/// The lease, unless the store's clock runs by itself.
const LEASE: Duration = Duration::from_secs(30);
/// With a clock that runs by itself, boundaries lie this many ticks apart at least.
const TICKS_IN_A_LEASE: u32 = 50;
/// How far the two policies of one record are apart in number: so far that what becomes of lapsed
/// claims, of failures and of attempts always differs.
const OTHER: usize = 17;

/// The durations and policies of one run of the suite.
#[derive(Debug)]
pub(super) struct Setting {
    /// The lease of the policies.
    pub(super) lease: Duration,
    /// The least step that counts: just before a boundary means this much before it.
    pub(super) tick: Duration,
    /// By how much two moments may differ and still be called the same.
    pub(super) slack: Duration,
    /// Longer than every duration of every policy.
    pub(super) much_later: Duration,
    policies: Vec<Arc<Policy>>,
    others: Vec<Arc<Policy>>,
}

impl Setting {
    pub(super) fn new(slack: Duration) -> Result<Self, PolicyError> {
        let tick = (slack * 2).max(Duration::from_millis(1));
        let lease = LEASE.max(tick * TICKS_IN_A_LEASE);
        let mut others = policies(lease * 2)?;
        others.rotate_left(OTHER);
        Ok(Self {
            lease,
            tick,
            slack,
            much_later: lease * 2000,
            policies: policies(lease)?,
            others,
        })
    }

    pub(super) fn tick_millis(&self) -> u64 {
        u64::try_from(self.tick.as_millis()).unwrap_or(u64::MAX)
    }

    /// The start of a policy with the suite's durations: what lapsed runs again, passing failures
    /// are retried, attempts are not limited, nothing remains after the retention of a hundred
    /// leases.
    pub(super) fn base(&self) -> PolicyBuilder {
        base(self.lease)
    }

    /// The same with a rule for lapsed leases.
    pub(super) fn on_lapsed(&self, rule: OnLapsed) -> Result<Arc<Policy>, PolicyError> {
        Ok(Arc::new(self.base().on_lapsed(rule).build()?))
    }

    pub(super) fn policy_count(&self) -> usize {
        self.policies.len()
    }

    /// A policy by number. Numbers wrap.
    pub(super) fn policy(&self, number: usize) -> Arc<Policy> {
        pick(&self.policies, number)
    }

    /// A policy that differs from that of the same number in its rules and in all its durations.
    pub(super) fn other_policy(&self, number: usize) -> Arc<Policy> {
        pick(&self.others, number)
    }
}

fn pick(policies: &[Arc<Policy>], number: usize) -> Arc<Policy> {
    let wrapped = number.checked_rem(policies.len()).unwrap_or_default();
    policies.get(wrapped).cloned().unwrap_or_default()
}

/// All combinations of the rules that a policy can have.
fn policies(lease: Duration) -> Result<Vec<Arc<Policy>>, PolicyError> {
    let mut policies = Vec::new();
    for on_lapsed in [OnLapsed::Rerun, OnLapsed::Resume, OnLapsed::Hold] {
        for on_failure in [OnFailure::Replay, OnFailure::Release, OnFailure::Retry(back_off(lease))]
        {
            for after in [AfterRetention::New, AfterRetention::Refuse(lease * 200)] {
                for max_attempts in [None, NonZeroU32::new(2)] {
                    let policy = base(lease)
                        .on_lapsed(on_lapsed)
                        .on_failure(on_failure)
                        .after_retention(after)
                        .max_attempts(max_attempts);
                    policies.push(Arc::new(policy.build()?));
                }
            }
        }
    }
    Ok(policies)
}

/// The durations that belong to a lease. All boundaries of a record lie apart.
fn base(lease: Duration) -> PolicyBuilder {
    Policy::builder()
        .on_lapsed(OnLapsed::Rerun)
        .lease(lease)
        .lease_cap(lease * 5 / 2)
        .on_failure(OnFailure::Retry(back_off(lease)))
        .max_attempts(None)
        .retention(lease * 100)
}

fn back_off(lease: Duration) -> BackOff {
    BackOff { first: lease * 3, max: lease * 4 }
}
