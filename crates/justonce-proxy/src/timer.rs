//! Timeouts that cost nothing while they are not needed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is armed once and moved only when it fires too early.
///
/// Deadlines mostly move away long before they are reached. Re-arming a timer for each of them
/// takes the timer wheel's lock twice a request; this one is left where it is, looks at the
/// deadline of the moment when it fires, and goes back to sleep.
pub(crate) struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    pub(crate) const fn new() -> Self {
        Self { sleep: None }
    }

    /// Ready once the deadline has passed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= deadline || Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl fmt::Debug for LazyTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyTimer").field("armed", &self.sleep.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deadlines_move_both_ways() {
        let start = Instant::now();
        let mut timer = LazyTimer::new();
        let wait = |seconds| start + Duration::from_secs(seconds);
        assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx, wait(5)).is_pending())).await);

        // Later than it was armed for.
        poll_fn(|cx| timer.poll(cx, wait(9))).await;
        assert_eq!(Instant::now().duration_since(start).as_secs(), 9);

        // Earlier than it was armed for.
        assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx, wait(60)).is_pending())).await);
        poll_fn(|cx| timer.poll(cx, wait(20))).await;
        assert_eq!(Instant::now().duration_since(start).as_secs(), 20);
    }
}
