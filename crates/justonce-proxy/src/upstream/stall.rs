//! When an exchange is given up.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::request_body::SendProgress;
use crate::timer::LazyTimer;

/// Expires when an upstream stalls: neither responds nor takes more of the request's body.
pub(super) struct StallTimer {
    timeout: Duration,
    deadline: Instant,
    frames: u64,
}

impl StallTimer {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, deadline: Instant::now() + timeout, frames: 0 }
    }

    pub(super) fn poll_expired(
        &mut self,
        timer: &mut LazyTimer,
        progress: Option<&SendProgress>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while timer.poll(cx, self.deadline).is_ready() {
            let frames = progress.map_or(0, SendProgress::frames);
            if frames == self.frames {
                return Poll::Ready(());
            }
            self.frames = frames;
            self.deadline = Instant::now() + self.timeout;
        }
        Poll::Pending
    }
}
