//! A listener as those see it who do not serve it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::watch;

use super::socket_file::SocketFile;
use super::tracker::ConnectionTracker;

/// Shows what a listener does, and lets it hand its socket over to another process: it
/// [leaves](Self::leave), [stops accepting](Self::stop_accepting) and [drains](Self::drain). Until
/// it has ended, it can [go on](Self::resume). Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use justonce_proxy::{Listener, ListenerSettings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let settings = ListenerSettings {
/// #     max_connections: 10, header_timeout: Duration::from_secs(1),
/// #     idle_timeout: Duration::from_secs(1), body_timeout: Duration::from_secs(1),
/// #     max_head_bytes: 8192, handshake_timeout: Duration::from_secs(1),
/// # };
/// let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), settings)?;
/// let handle = listener.handle();
/// handle.stop_accepting();
/// assert!(handle.askers().now == 0);
/// handle.resume();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ListenerHandle(pub(super) Arc<Shared>);

/// What a listener shares with its handles.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tracker: Arc<ConnectionTracker>,
    pub(super) accepts: watch::Sender<bool>,
    /// Whether it has heard that it is not to accept connections.
    pub(super) rests: AtomicBool,
    /// Another process serves the socket, so its file stays.
    pub(super) is_passed_on: AtomicBool,
    /// The file that is removed once the socket has been served.
    file: Option<SocketFile>,
}

/// Connections that may still bring a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Askers {
    /// All of them.
    pub now: usize,
    /// Those that were there before the listener was told to leave.
    pub before: usize,
}

/// The connections of a listener, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerStats {
    /// Connections that are open.
    pub open: usize,
    /// Those of them that speak HTTP/1.
    pub open_http1: usize,
    /// Those of them that speak HTTP/2.
    pub open_http2: usize,
    /// How many may be open.
    pub limit: usize,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Those of them that spoke HTTP/1.
    pub http1: u64,
    /// Those of them that spoke HTTP/2.
    pub http2: u64,
    /// Those of them that were closed at once, because too many were open.
    pub over_limit: u64,
    /// Those of them that were closed because they came from no trusted proxy, or did not say whose
    /// they are.
    pub bad_source: u64,
}

impl ListenerHandle {
    pub(super) fn new(max_connections: usize, file: Option<SocketFile>) -> Self {
        Self(Arc::new(Shared {
            tracker: Arc::new(ConnectionTracker::new(max_connections)),
            accepts: watch::Sender::new(true),
            rests: AtomicBool::new(false),
            is_passed_on: AtomicBool::new(false),
            file,
        }))
    }

    /// Whether the file of the socket is removed once it has been served: it is one of ours, and
    /// nobody has put another one in its place.
    #[must_use]
    pub fn owns_file(&self) -> bool {
        self.0.file.as_ref().is_some_and(SocketFile::is_there)
    }

    /// Says `Connection: close` with every HTTP/1 response from here on; connections are accepted
    /// as before. Clients that send many requests over one connection come back with new ones.
    pub fn leave(&self) {
        self.0.tracker.leave();
    }

    /// Accepts no more connections: the next ones wait in the socket, for another process or for
    /// this one.
    pub fn stop_accepting(&self) {
        self.0.accepts.send_replace(false);
    }

    /// Whether the last connection has been accepted, after it was told to stop.
    #[must_use]
    pub fn has_stopped_accepting(&self) -> bool {
        self.0.rests.load(Ordering::Acquire)
    }

    /// The open connections finish the requests under way. Those without one are closed, and HTTP/2
    /// clients are told so (GOAWAY). Whoever has connected at this moment may send one request.
    pub fn drain(&self) {
        self.0.tracker.drain();
    }

    /// Goes on as if it had never been told to leave. Connections that are being closed stay so.
    pub fn resume(&self) {
        self.0.tracker.resume();
        self.0.accepts.send_replace(true);
    }

    /// Another process serves the socket from here on: the file of a Unix socket stays.
    pub fn pass_on(&self) {
        self.0.is_passed_on.store(true, Ordering::Release);
    }

    /// How many connections may still bring a request. Those that have switched to another
    /// protocol, and those that close after the response under way, do not.
    #[must_use]
    pub fn askers(&self) -> Askers {
        let (now, before) = self.0.tracker.askers();
        Askers { now, before }
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> ListenerStats {
        let (tracker, totals) = (&self.0.tracker, &self.0.tracker.totals);
        let open = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        ListenerStats {
            open: tracker.count(),
            open_http1: open(&totals.http1.open),
            open_http2: open(&totals.http2.open),
            limit: tracker.max(),
            accepted: totals.accepted.load(Ordering::Relaxed),
            http1: totals.http1.all.load(Ordering::Relaxed),
            http2: totals.http2.all.load(Ordering::Relaxed),
            over_limit: totals.over_limit.load(Ordering::Relaxed),
            bad_source: totals.bad_source.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    /// Waits until connections are accepted.
    pub(super) async fn until_accepting(&self) {
        if *self.accepts.borrow() {
            return;
        }
        self.rests.store(true, Ordering::Release);
        self.until(true).await;
        self.rests.store(false, Ordering::Release);
    }

    /// Waits until connections are not accepted any more.
    pub(super) async fn until_stopped(&self) {
        self.until(false).await;
    }

    async fn until(&self, wanted: bool) {
        // It fails only without a sender, and this is the sender.
        let _ = self.accepts.subscribe().wait_for(|accepts| *accepts == wanted).await;
    }
}
