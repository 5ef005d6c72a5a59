//! What one caller has used of its limits.

use std::sync::Arc;
use std::time::Duration;

use super::settings::CallerLimits;
use super::window::StoredWindow;

/// How long a caller should wait that has too many operations running: how long they take is not
/// known.
const RETRY_RUNNING: Duration = Duration::from_secs(1);

/// A limit of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Rate,
    Concurrent,
    StoredBytes,
}

impl Limit {
    pub(crate) const ALL: [Self; 3] = [Self::Rate, Self::Concurrent, Self::StoredBytes];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Concurrent => "concurrent",
            Self::StoredBytes => "stored_bytes",
        }
    }
}

/// Which limit a caller has reached, and when it should try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) limit: Limit,
    pub(crate) retry_after: Duration,
}

/// What one caller has used. Times count from the making of the table.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// When its bucket is full again.
    full_at: Duration,
    /// Cloned for each running operation.
    running: Arc<()>,
    stored: StoredWindow,
}

impl Usage {
    /// Admits an operation, or says which limit is reached. Then nothing has changed.
    pub(super) fn admit(
        &mut self,
        limits: &CallerLimits,
        now: Duration,
    ) -> Result<Arc<()>, Refusal> {
        let refused = |limit, retry_after| Refusal { limit, retry_after };
        if let Some(limit) = limits.stored_bytes
            && let Some(wait) = self.stored.full_for(limit, now)
        {
            return Err(refused(Limit::StoredBytes, wait));
        }
        if limits.concurrent.is_some_and(|limit| self.running() >= limit) {
            return Err(refused(Limit::Concurrent, RETRY_RUNNING));
        }
        if let Some(rate) = limits.rate {
            let taken = rate.take(self.full_at, now);
            self.full_at = taken.map_err(|wait| refused(Limit::Rate, wait))?;
        }
        Ok(Arc::clone(&self.running))
    }

    /// Counts an operation that runs already.
    pub(super) fn force(&mut self, limits: &CallerLimits, now: Duration) -> Arc<()> {
        if let Some(rate) = limits.rate {
            self.full_at = rate.force(self.full_at, now);
        }
        Arc::clone(&self.running)
    }

    /// Takes back that an operation was begun.
    pub(super) fn give_back(&mut self, limits: &CallerLimits) {
        if let Some(rate) = limits.rate {
            self.full_at = rate.put_back(self.full_at);
        }
    }

    /// Other limits count from now on; what was used stays used.
    pub(super) fn change(&mut self, from: &CallerLimits, to: &CallerLimits, now: Duration) {
        if let (Some(before), Some(after)) = (&from.rate, &to.rate)
            && before != after
        {
            self.full_at = after.instead_of(before, self.full_at, now);
        }
    }

    /// Counts an outcome.
    pub(super) fn add_stored(&mut self, bytes: u64, retention: Duration, now: Duration) {
        self.stored.add(bytes, retention, now);
    }

    /// How much of a limit is used, in thousandths; the most of all limits.
    pub(super) fn used(&self, limits: &CallerLimits, now: Duration) -> u64 {
        let part = |used: u64, limit: u64| used.saturating_mul(1000) / limit.max(1);
        let running = u64::try_from(self.running()).unwrap_or(u64::MAX);
        let concurrent = limits.concurrent.map(|limit| part(running, limit as u64));
        let stored = limits.stored_bytes.map(|limit| part(self.stored.total(now), limit));
        let rate = limits.rate.map(|rate| rate.used(self.full_at, now));
        [concurrent, stored, rate].into_iter().flatten().max().unwrap_or_default()
    }

    fn running(&self) -> usize {
        Arc::strong_count(&self.running).saturating_sub(1)
    }
}
