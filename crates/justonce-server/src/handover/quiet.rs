//! When nothing uses the store any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Those that began before the last mark, and those since, in turn.
#[derive(Debug, Default)]
struct Counts {
    under_way: [AtomicUsize; 2],
    marks: AtomicUsize,
}

/// Counts a request until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    counts: Arc<Counts>,
    marks: usize,
}

impl Requests {
    /// One more.
    pub(crate) fn begin(&self) -> InFlight {
        let marks = self.0.marks.load(Ordering::Acquire);
        self.0.of(marks).fetch_add(1, Ordering::AcqRel);
        InFlight { counts: Arc::clone(&self.0), marks }
    }

    /// From here on, those that have begun are told apart.
    pub(super) fn mark(&self) {
        self.0.marks.fetch_add(1, Ordering::AcqRel);
    }

    /// How many of those that began before the last mark are left.
    pub(super) fn before(&self) -> usize {
        self.0.of(self.0.marks.load(Ordering::Acquire).wrapping_add(1)).load(Ordering::Acquire)
    }

    fn count(&self) -> usize {
        self.0.under_way.iter().map(|count| count.load(Ordering::Acquire)).sum()
    }
}

impl Counts {
    fn of(&self, marks: usize) -> &AtomicUsize {
        let [even, odd] = &self.under_way;
        if marks.is_multiple_of(2) { even } else { odd }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counts.of(self.marks).fetch_sub(1, Ordering::AcqRel);
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
