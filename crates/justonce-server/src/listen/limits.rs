//! The limits of the client side.

use std::time::Duration;

/// How many connections there are at most; a further one is closed as soon as it is accepted.
pub(super) const MAX_CONNECTIONS: usize = 20_000;
/// How long the head of a request may take from its first byte to its last.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a TLS handshake may take.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may stay unused, and how long a client may leave an answer unread. It is
/// looked at five times in that period, so the end can be a fifth late.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long the body of a request may stand still.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How many bytes the head of a request may have. How many headers is the server's own limit:
/// 100.
pub(super) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Below this the server of HTTP/1 does not go.
pub(super) const MIN_HEAD_BYTES: usize = 8192;
/// How many requests one HTTP/2 connection may have under way.
pub(super) const MAX_STREAMS: u32 = 256;
/// How many streams a client may reset before we have looked at them; more ends the connection.
pub(super) const MAX_RESET_STREAMS: usize = 64;
/// How many streams may be reset for a client's own errors; more ends the connection.
pub(super) const MAX_ERROR_STREAMS: usize = 256;
/// After which silence an HTTP/2 client is asked whether it is still there.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long it may take to say so.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How many connections may wait to be accepted.
pub(super) const BACKLOG: i32 = 4096;
/// How long accepting pauses when the system has no room for another connection.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The limits of a listener that can be set.
///
/// ```
/// use std::time::Duration;
/// use justonce_server::listen::ListenLimits;
///
/// // The defaults.
/// let usual = ListenLimits::default();
/// // Clients on a slow line.
/// let slow = ListenLimits { body_timeout: Duration::from_secs(120), ..usual };
/// assert_eq!(slow.max_connections, 20_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenLimits {
    /// How many connections there are at most; a further one is closed at once.
    pub max_connections: usize,
    /// How long the head of a request may take.
    pub header_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a connection may stay unused.
    pub keep_alive: Duration,
    /// How long the body of a request may stand still.
    pub body_timeout: Duration,
    /// How many bytes the head of a request may have, at least 8 KiB.
    pub max_head_bytes: usize,
}

impl Default for ListenLimits {
    fn default() -> Self {
        Self {
            max_connections: MAX_CONNECTIONS,
            header_timeout: HEADER_TIMEOUT,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            keep_alive: KEEP_ALIVE,
            body_timeout: BODY_TIMEOUT,
            max_head_bytes: MAX_HEAD_BYTES,
        }
    }
}
