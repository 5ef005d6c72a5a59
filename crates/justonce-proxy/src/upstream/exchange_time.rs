//! How long an upstream took over a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How long an upstream took over a request: an extension of the request, of which a clone is kept
/// and read when the response has ended.
///
/// It counts from when the request is handed to the proxy to the end of the upstream's response,
/// connecting and waiting for a connection included. A client that reads slowly makes it longer.
#[derive(Clone, Debug, Default)]
pub struct ExchangeTime(Arc<AtomicU64>);

impl ExchangeTime {
    /// The time; nothing if no exchange has ended.
    #[must_use]
    pub fn get(&self) -> Option<Duration> {
        let micros = self.0.load(Ordering::Acquire);
        micros.checked_sub(1).map(Duration::from_micros)
    }

    pub(super) fn start(self) -> RunningExchange {
        RunningExchange { time: self, start: Instant::now() }
    }
}

/// An exchange that ends when this is dropped.
#[derive(Debug)]
pub(super) struct RunningExchange {
    time: ExchangeTime,
    start: Instant,
}

impl Drop for RunningExchange {
    fn drop(&mut self) {
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        // 0 says that none has ended.
        self.time.0.store(micros.saturating_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_time_is_known_once_the_exchange_has_ended() {
        let time = ExchangeTime::default();
        let running = time.clone().start();
        tokio::time::advance(Duration::from_millis(7)).await;
        assert_eq!(time.get(), None);
        drop(running);
        assert_eq!(time.get(), Some(Duration::from_millis(7)));
        drop(time.clone().start());
        assert_eq!(time.get(), Some(Duration::ZERO));
    }
}
