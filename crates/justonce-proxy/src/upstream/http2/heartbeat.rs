//! Tests of connections on which nothing happens.

use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::Instant;

/// The pauses after the first tests in a row; the last one is repeated. gRPC servers close
/// connections that are tested more than a few times within five minutes while they send nothing.
const PAUSES: [Duration; 2] = [Duration::from_secs(40), Duration::from_secs(310)];
/// The pause before the first of them.
const FIRST_PAUSE: Duration = Duration::from_secs(20);
/// How long the upstream may take to respond to a test.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Tests a connection.
pub(super) struct Heartbeat {
    // Nothing on a connection that cannot be tested.
    pings: Option<PingPong>,
    sent: usize,
    /// When the next test is due, or the current one has failed.
    deadline: Instant,
    is_waiting: bool,
}

impl Heartbeat {
    pub(super) fn new(pings: Option<PingPong>) -> Self {
        Self { pings, sent: 0, deadline: Instant::now() + FIRST_PAUSE, is_waiting: false }
    }

    /// When it wants to be polled at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pings.is_some().then_some(self.deadline)
    }

    /// Something of a response has come.
    pub(super) fn alive(&mut self) {
        if !self.is_waiting {
            self.sent = 0;
            self.deadline = Instant::now() + FIRST_PAUSE;
        }
    }

    /// Ready if the upstream does not respond.
    pub(super) fn poll_failed(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pings) = &mut self.pings else { return Poll::Pending };
        if self.is_waiting {
            match pings.poll_pong(cx) {
                Poll::Ready(Ok(_)) => {
                    self.is_waiting = false;
                    let pause = PAUSES.get(self.sent.saturating_sub(1)).or(PAUSES.last()).copied();
                    self.deadline = now + pause.unwrap_or(FIRST_PAUSE);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending if self.deadline <= now => return Poll::Ready(()),
                Poll::Pending => {}
            }
        } else if self.deadline <= now {
            self.sent += 1;
            self.deadline = now + TIMEOUT;
            self.is_waiting = pings.send_ping(Ping::opaque()).is_ok();
            if self.is_waiting {
                // Registers for the response.
                return self.poll_failed(now, cx);
            }
        }
        Poll::Pending
    }
}
