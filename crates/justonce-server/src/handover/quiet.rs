//! When nothing uses the store any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;
use justonce::Engine;
use justonce_proxy::ListenerHandle;
use tokio::time::{Instant, sleep, timeout_at};

/// How often it is looked.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// How long an HTTP/2 client may take to hear that it must send no more requests on a connection
/// that stays open for what runs on it: a round trip.
const HTTP2_SETTLED: Duration = Duration::from_millis(250);

/// The requests under way that may use the store. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// All of them.
    all: AtomicUsize,
    /// Those since the last mark, beside the number of marks.
    since: AtomicU64,
}

/// The number of marks is above these bits, the number of requests since then in them.
const SINCE_BITS: u32 = 32;

/// Counts a request until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    counts: Arc<Counts>,
    marks: u64,
}

impl Requests {
    /// One more.
    pub(crate) fn begin(&self) -> InFlight {
        // In this order, so that one that begins or ends counts as one from before for a moment,
        // never as none.
        self.0.all.fetch_add(1, Ordering::AcqRel);
        let marks = marks_of(self.0.since.fetch_add(1, Ordering::AcqRel));
        InFlight { counts: Arc::clone(&self.0), marks }
    }

    /// From here on, those that have begun are told apart.
    pub(super) fn mark(&self) {
        let next = |since| Some((marks_of(since).wrapping_add(1)) << SINCE_BITS);
        let _ = self.0.since.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// How many of those that began before the last mark are left, however long before.
    pub(super) fn before(&self) -> usize {
        let since = self.since();
        self.count().saturating_sub(since)
    }

    /// How many of those that have begun since the last mark are left.
    pub(super) fn since(&self) -> usize {
        requests_of(self.0.since.load(Ordering::Acquire))
    }

    fn count(&self) -> usize {
        self.0.all.load(Ordering::Acquire)
    }
}

const fn marks_of(since: u64) -> u64 {
    since >> SINCE_BITS
}

fn requests_of(since: u64) -> usize {
    usize::try_from(since & ((1 << SINCE_BITS) - 1)).unwrap_or(usize::MAX)
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let (of, marks) = (&self.counts.since, self.marks);
        let is_since = |since| (marks_of(since) == marks).then(|| since - 1);
        let _ = of.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_since);
        self.counts.all.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits until no request can come any more, none is under way that may use the store, and nothing
/// is executing. The listeners accept nothing meanwhile.
///
/// # Errors
///
/// If that takes too long.
pub(super) async fn quiet(
    listeners: &[&ListenerHandle],
    requests: &Requests,
    engine: &Engine,
    deadline: Instant,
) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let askers: usize = listeners.iter().map(|listener| listener.askers().now).sum();
        let http2: usize = listeners.iter().map(|listener| listener.stats().open_http2).sum();
        let is_settled = http2 == 0 || start.elapsed() >= HTTP2_SETTLED;
        let has_stopped = listeners.iter().all(|listener| listener.has_stopped_accepting());
        let is_idle = has_stopped && askers == 0 && is_settled && requests.count() == 0;
        // What callers left behind, too.
        if is_idle && timeout_at(deadline, engine.drained()).await.is_ok() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let (running, executing) = (requests.count(), engine.load().executing);
            bail!(
                "{askers} connections, {running} requests and {executing} operations had not \
                 ended within `handover_pause`"
            );
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_from_before_any_mark_count_as_such() {
        let requests = Requests::default();
        let (oldest, ended) = (requests.begin(), requests.begin());
        assert_eq!((requests.before(), requests.count()), (0, 2));
        requests.mark();
        let old = requests.begin();
        assert_eq!((requests.before(), requests.count()), (2, 3));
        drop(ended);
        assert_eq!((requests.before(), requests.count()), (1, 2));
        // The restart has failed, and there is another one.
        requests.mark();
        let new = requests.begin();
        assert_eq!((requests.before(), requests.count()), (2, 3));
        drop(old);
        drop(new);
        assert_eq!((requests.before(), requests.count()), (1, 1));
        requests.mark();
        assert_eq!((requests.before(), requests.count()), (1, 1));
        drop(oldest);
        assert_eq!((requests.before(), requests.count()), (0, 0));
    }
}
