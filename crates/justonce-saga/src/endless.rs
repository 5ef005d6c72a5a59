//! The policy of records that must neither be given up nor be forgotten half done.

use justonce_core::{OnLapsed, Policy, PolicyError};

/// The durations of a policy, resumed without a limit of attempts.
pub(crate) fn endless(policy: &Policy) -> Result<Policy, PolicyError> {
    Policy::builder()
        .lease(policy.lease())
        .lease_cap(policy.lease_cap())
        .retention(policy.retention())
        .after_retention(policy.after_retention())
        .on_lapsed(OnLapsed::Resume)
        .max_attempts(None)
        .build()
}
