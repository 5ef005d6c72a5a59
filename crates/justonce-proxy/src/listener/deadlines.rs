//! How long a connection may take for a head, and how long it may be idle.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::Activity;
use super::settings::ListenerSettings;
use crate::timer::LazyTimer;

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
