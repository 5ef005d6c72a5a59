//! What a connection is doing, as the task that drives it sees it, and how long it may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::settings::ListenerSettings;
use super::tracker::{ConnectionTracker, Stage};
use crate::timer::LazyTimer;

/// What a connection is doing. Everything of a connection is in one task; the atomics only let
/// that task move between threads.
#[derive(Debug)]
pub(super) struct Activity {
    tracker: Arc<ConnectionTracker>,
    // Requests whose responses are not finished.
    active: AtomicUsize,
    // Those of them whose response waits for the service, and not for the client to read more.
    pending: AtomicUsize,
    // All requests so far.
    requests: AtomicU64,
    // Those of them that are finished.
    finished: AtomicU64,
    // The head of a request has begun and not ended.
    in_head: AtomicBool,
    // Heads of HTTP/1 requests that have begun.
    heads: AtomicU64,
    // The client does not read what is written.
    blocked: AtomicBool,
    // How often a large write succeeded: the client reads a response.
    writes: AtomicU64,
}

/// Shorter writes may be HTTP/2 PINGs, which say nothing about responses.
const LARGE_WRITE_BYTES: usize = 512;

impl Activity {
    pub(super) fn new(tracker: Arc<ConnectionTracker>) -> Self {
        Self {
            tracker,
            active: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            in_head: AtomicBool::new(false),
            heads: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            writes: AtomicU64::new(0),
        }
    }

    pub(super) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut request = ActiveRequest { activity: Arc::clone(self), pending: false };
        request.set_pending(true);
        request
    }

    pub(super) fn has_requests(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Whether a response waits for the service. One that waits for the client to open its HTTP/2
    /// window does not keep the connection open.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn set_in_head(&self, in_head: bool, heads: u64) {
        self.in_head.store(in_head, Ordering::Relaxed);
        self.heads.store(heads, Ordering::Relaxed);
    }

    /// Whether the head of a request has begun that no service has seen.
    pub(super) fn has_unread_head(&self) -> bool {
        self.heads.load(Ordering::Relaxed) > self.requests()
    }

    pub(super) fn is_in_head(&self) -> bool {
        self.in_head.load(Ordering::Relaxed)
    }

    /// This many bytes were written, or the socket took none.
    pub(super) fn wrote(&self, bytes: Option<usize>) {
        if bytes.is_some_and(|bytes| bytes >= LARGE_WRITE_BYTES) {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.blocked.store(bytes.is_none(), Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Changes with everything that counts as use of the connection: a request begins or ends, or
    /// the client reads some of a response, even one that was handed over long before. HTTP/2 PINGs
    /// do not count.
    pub(super) fn progress(&self) -> u64 {
        let writes = self.writes.load(Ordering::Relaxed);
        let finished = self.finished.load(Ordering::Relaxed);
        self.requests().wrapping_add(finished).wrapping_add(writes)
    }
}

/// A request whose response is not finished.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    activity: Arc<Activity>,
    pending: bool,
}

impl ActiveRequest {
    /// Whether the response should be the last one on its connection.
    pub(super) fn is_last(&self) -> bool {
        self.activity.tracker.stage() != Stage::Running
    }

    /// Whether its response waits for the service now.
    pub(super) fn set_pending(&mut self, pending: bool) {
        match (self.pending, pending) {
            (false, true) => self.activity.pending.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.activity.pending.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        self.pending = pending;
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.set_pending(false);
        self.activity.active.fetch_sub(1, Ordering::Relaxed);
        self.activity.finished.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often an idle connection is checked before it is closed.
const CHECKS: u32 = 5;

/// How a connection that exceeds its time is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// At once.
    Close,
    /// With a notice to the client that no further request is served.
    ShutDown,
}

/// The deadlines of one connection.
pub(super) struct Deadlines {
    timer: LazyTimer,
    header_timeout: Duration,
    check_interval: Duration,
    next_check: Instant,
    idle_checks: u32,
    progress: u64,
    shut_down: bool,
    // The head under way: after how many requests it began, and its deadline.
    head: Option<(u64, Instant)>,
}

impl Deadlines {
    pub(super) fn new(settings: &ListenerSettings) -> Self {
        let check_interval = settings.idle_timeout / CHECKS;
        Self {
            timer: LazyTimer::new(),
            header_timeout: settings.header_timeout,
            check_interval,
            next_check: Instant::now() + check_interval,
            idle_checks: 0,
            progress: 0,
            shut_down: false,
            head: None,
        }
    }

    /// For how long the head under way has been coming.
    pub(super) fn in_head_for(&self) -> Duration {
        let began = self.head.and_then(|(_, end)| end.checked_sub(self.header_timeout));
        began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    pub(super) fn poll_expired(
        &mut self,
        activity: &Activity,
        cx: &mut Context<'_>,
    ) -> Poll<Expired> {
        let requests = activity.requests();
        if !activity.is_in_head() {
            self.head = None;
        } else if self.head.is_none_or(|(number, _)| number != requests) {
            self.head = Some((requests, Instant::now() + self.header_timeout));
        }
        loop {
            let deadline = self.head.map_or(self.next_check, |(_, end)| end.min(self.next_check));
            if self.timer.poll(cx, deadline).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if self.head.is_some_and(|(_, end)| end <= now) {
                return Poll::Ready(Expired::Close);
            }
            let idle = self.next_check <= now && self.is_idle(activity);
            self.next_check = self.next_check.max(now + self.check_interval);
            if idle {
                let again = std::mem::replace(&mut self.shut_down, true);
                let close = again || activity.has_requests();
                return Poll::Ready(if close { Expired::Close } else { Expired::ShutDown });
            }
        }
    }

    fn is_idle(&mut self, activity: &Activity) -> bool {
        let progress = activity.progress();
        let working = activity.has_pending() && !activity.is_blocked();
        if working || progress != self.progress {
            (self.progress, self.idle_checks) = (progress, 0);
            return false;
        }
        self.idle_checks += 1;
        self.idle_checks >= CHECKS
    }
}
