//! What must take effect once.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::claim::Checkpoint;
use crate::fingerprint::Fingerprint;
use crate::hash;
use crate::key::Key;
use crate::policy::Policy;
use crate::record_id::RecordId;
use crate::scope::Scope;

/// How long a duplicate waits for a running operation by default.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// The policy of operations that brought none.
static DEFAULT_POLICY: LazyLock<Arc<Policy>> = LazyLock::new(Arc::default);

/// What must take effect once: a key in a scope, what was asked, and the policy.
///
/// ```
/// use justonce_core::{Fingerprint, Key, OnConcurrent, Operation, Scope};
///
/// // The default: default policy, duplicates wait for the outcome. The fingerprint tells when the
/// // key is used for something else.
/// let scope = Scope::builder().tenant("acme").operation("charge").build()?;
/// let fingerprint = Fingerprint::of_json(&scope, br#"{"amount": 5}"#);
/// let operation = Operation::new(scope, Key::client("order-17")?, fingerprint);
///
/// // Customised: the key alone says what is asked, so there is nothing to compare.
/// let scope = Scope::builder().operation("close-month").build()?;
/// let closing = Operation::without_fingerprint(scope, Key::client("2024-05")?)
///     .on_concurrent(OnConcurrent::Reject);
/// assert_ne!(operation.id(), closing.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Operation {
    id: RecordId,
    scope: Scope,
    key: Key,
    fingerprint: Fingerprint,
    /// Nothing is the default, which need not be made for those who bring their own.
    policy: Option<Arc<Policy>>,
    on_concurrent: OnConcurrent,
    handler_timeout: Option<Duration>,
    checkpoint: Option<Checkpoint>,
}

/// What a duplicate of a running operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnConcurrent {
    /// It gets *busy* at once.
    Reject,
    /// It waits for the outcome, at most this long, and never runs the handler itself.
    Wait(Duration),
    /// It waits for the outcome, at most this long, and runs the handler itself if the owner gave
    /// the operation up.
    Cooperate(Duration),
}

impl Default for OnConcurrent {
    fn default() -> Self {
        Self::Cooperate(DEFAULT_WAIT)
    }
}

impl Operation {
    /// An operation with the default policy. The fingerprint is the digest of what is asked: the
    /// same key with another one is a mismatch, and nothing is executed.
    #[must_use]
    pub fn new(scope: Scope, key: Key, fingerprint: Fingerprint) -> Self {
        Self {
            id: RecordId::of(&scope, &key),
            scope,
            key,
            fingerprint,
            policy: None,
            on_concurrent: OnConcurrent::default(),
            handler_timeout: None,
            checkpoint: None,
        }
    }

    /// An operation whose key alone says what is asked. **A key that is used for two things is not
    /// detected: the second caller gets the outcome of the first.**
    #[must_use]
    pub fn without_fingerprint(scope: Scope, key: Key) -> Self {
        Self::new(scope, key, Fingerprint::UNCHECKED)
    }

    /// The same with another fingerprint.
    #[must_use]
    pub const fn with_fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// Another policy. Share one `Arc` between operations of a kind.
    #[must_use]
    pub fn with_policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// What a duplicate does while the operation runs. Default: [`OnConcurrent::Cooperate`] for
    /// [`DEFAULT_WAIT`].
    #[must_use]
    pub const fn on_concurrent(mut self, rule: OnConcurrent) -> Self {
        self.on_concurrent = rule;
        self
    }

    /// How long the handler may run. Default: as long as the lease can be renewed.
    #[must_use]
    pub const fn with_handler_timeout(mut self, timeout: Duration) -> Self {
        self.handler_timeout = Some(timeout);
        self
    }

    /// The checkpoint that the operation starts with. It is stored together with the claim, so
    /// that a takeover knows what was asked, also if the first owner died
    /// before it saved anything. Under `resume` a later point replaces it.
    #[must_use]
    pub fn starting_from(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint.numbered(0));
        self
    }

    /// The name of its record.
    #[must_use]
    pub const fn id(&self) -> RecordId {
        self.id
    }

    /// Whose namespace the key lives in.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The caller's name for it.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The digest of what was asked.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        self.policy.as_ref().unwrap_or_else(|| &DEFAULT_POLICY)
    }

    /// What a duplicate does while it runs.
    #[must_use]
    pub const fn concurrent_rule(&self) -> OnConcurrent {
        self.on_concurrent
    }

    /// The checkpoint that it starts with.
    #[must_use]
    pub const fn first_checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// How long its handler may run: its own timeout, at most what the lease's cap allows.
    #[must_use]
    pub fn handler_limit(&self) -> Duration {
        let cap = self.policy().lease_cap();
        self.handler_timeout.map_or(cap, |timeout| timeout.min(cap))
    }

    /// The key of a step of this operation, to send downstream: stable across retries, different
    /// for every scope, key and step.
    #[must_use]
    pub fn child_key(&self, step: &str) -> Key {
        let parts: [&[u8]; 2] = [self.id.as_bytes(), step.as_bytes()];
        Key::derived("child", &hash::keyed(hash::CHILD, &parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_keys_of_two_tenants_differ() {
        let of = |tenant: &str| {
            let scope = Scope::builder().tenant(tenant).build().unwrap();
            Operation::without_fingerprint(scope, Key::client("1").unwrap()).child_key("charge")
        };
        assert_ne!(of("a"), of("b"));
        assert_eq!(of("a"), of("a"));
    }

    #[test]
    fn the_handler_never_outlives_the_lease() {
        let operation = Operation::without_fingerprint(Scope::global(), Key::client("1").unwrap());
        let cap = operation.policy().lease_cap();
        assert_eq!(operation.handler_limit(), cap);
        assert_eq!(operation.clone().with_handler_timeout(Duration::MAX).handler_limit(), cap);
        let second = Duration::from_secs(1);
        assert_eq!(operation.with_handler_timeout(second).handler_limit(), second);
    }
}
