//! The signals that the gateway obeys.

use std::task::{Context, Waker};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the gateway, and the one that starts its successor.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    restart: Signal,
}

impl Signals {
    /// Watches for them.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch for signals");
        // From here on it does not end the process, as it would by default. Whoever reloads begins
        // later, and then looks for what has changed since the start.
        drop(watch(SignalKind::hangup())?);
        Ok(Self {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
            restart: watch(SignalKind::user_defined2())?,
        })
    }

    /// Waits for one that ends the gateway.
    pub(crate) async fn stop(&mut self) -> &'static str {
        stopped(&mut self.terminate, &mut self.interrupt).await
    }

    /// Forgets the signals to start a successor that have come so far.
    pub(crate) fn forget_restarts(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while self.restart.poll_recv(&mut context).is_ready() {}
    }

    /// Waits for one that ends the gateway, or for the one that starts its successor: nothing then.
    pub(crate) async fn any(&mut self) -> Option<&'static str> {
        tokio::select! {
            biased;
            name = stopped(&mut self.terminate, &mut self.interrupt) => Some(name),
            _ = self.restart.recv() => None,
        }
    }
}

async fn stopped(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
